#include "panic.h"

#include "../lib/format.h"
#include "console.h"
#include "machine.h"
#include "x86.h"

/* Takes no lock: whoever holds one may be the reason we are here. */
void panic(const char *fmt, ...)
{
    char message[256];
    va_list args;
    disable_interrupts();
    va_start(args, fmt);
    format(message, sizeof message, fmt, args);
    va_end(args);
    console_write("\nPANIC: ");
    console_write(message);
    console_write("\n");
    machine_off();
}
