/* Ends without having waited for its child, which whoever takes it over must clear away. */
#include "user.h"

int main(void)
{
    fork();
    return 0;
}
