/* Prints without end. */
#include "user.h"

int main(void)
{
    for (;;)
        print("there is more to say\n");
}
