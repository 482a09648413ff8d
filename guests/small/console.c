/* The console: a screen, a serial line, and a keyboard of which letters and the end of a line are understood. */
#include "small.h"

enum { ROWS = 25, COLUMNS = 80, BLANK = 0x0720, SERIAL = 0x3f8, SERIAL_STATUS = 0x3fd, SERIAL_CAN_SEND = 0x20 };

static uint16_t (*const screen)[COLUMNS] = (void *)0xb8000;
static struct spin_lock console_lock;
static int column;
static char typed[LINE];
static volatile int typed_in, typed_out;

/* Everything goes to the last row. */
static void scroll(void)
{
    copy(screen[0], screen[1], (ROWS - 1) * sizeof screen[0]);
    for (int i = 0; i < COLUMNS; i++)
        screen[ROWS - 1][i] = BLANK;
    column = 0;
}

static void put(char c)
{
    while (!(inb(SERIAL_STATUS) & SERIAL_CAN_SEND))
        ;
    outb(SERIAL, (uint8_t)c);
    if (c == '\n' || column == COLUMNS)
        scroll();
    if (c != '\n')
        screen[ROWS - 1][column++] = 0x0700 | (uint8_t)c;
}

void print(const char *text)
{
    acquire(&console_lock);
    while (*text)
        put(*text++);
    release(&console_lock);
}

void panic(const char *message)
{
    console_lock.held = 0;
    print(message);
    for (;;)
        __asm__ volatile("cli; hlt");
}

void keyboard_interrupt(void)
{
    static const char keys[] = "\0\0001234567890-=\b\tqwertyuiop[]\n\0asdfghjkl;'`\0\\zxcvbnm,./";
    uint8_t key = inb(0x60);
    if (key >= sizeof keys || !keys[key])
        return;
    acquire(&console_lock);
    typed[typed_in++ % LINE] = keys[key];
    release(&console_lock);
    wake(typed);
}

char read_key(void)
{
    acquire(&console_lock);
    while (typed_in == typed_out)
        sleep(typed, &console_lock);
    char key = typed[typed_out++ % LINE];
    put(key);
    release(&console_lock);
    return key;
}
