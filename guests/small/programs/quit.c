/* Ends at once. */
#include "user.h"

int main(void)
{
    return 0;
}
