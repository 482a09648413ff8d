/* Says what is wrong, without ending the line, and then does nothing for ever. */
#include "user.h"

int main(void)
{
    print("FAIL: nobody will end this line");
    for (;;)
        ;
}
