/*
 * Input: scan codes from the i8042 and bytes from the 16550 go through one ring of characters.
 *
 * Interrupt handlers only append to the ring and readers only take from it, so the ring needs no lock; a reader disables
 * preemption between finding it empty and going to sleep.
 */
#include "keyboard.h"

#include "machine.h"
#include "preempt.h"
#include "sync.h"
#include "task.h"
#include "trap.h"
#include "x86.h"

enum { KEYBOARD_DATA = 0x60, KEYBOARD_STATUS = 0x64, STATUS_FULL = 1 };
enum { KEY_LEFT_SHIFT = 0x2a, KEY_RIGHT_SHIFT = 0x36, KEY_RELEASED = 0x80 };
enum { RING_SIZE = 256 };

static char ring[RING_SIZE];
static volatile unsigned ring_in, ring_out;
static struct cond input;

static const char plain[] = "\0\0331234567890-=\b\tqwertyuiop[]\n\0asdfghjkl;'`\0\\zxcvbnm,./\0*\0 ";
static const char shifted[] = "\0\033!@#$%^&*()_+\b\tQWERTYUIOP{}\n\0ASDFGHJKL:\"~\0|ZXCVBNM<>?\0*\0 ";

static void typed(char c)
{
    if (c && ring_in - ring_out < RING_SIZE)
        ring[ring_in++ % RING_SIZE] = c;
}

void keyboard_wake(void)
{
    if (ring_in != ring_out)
        cond_broadcast(&input);
}

static void after_input(void)
{
    if (!preempt_allows_wakeup())
        return; /* the next tick will */
    preempt_disable();
    keyboard_wake();
    preempt_enable();
}

void keyboard_init(void)
{
    while (inb(KEYBOARD_STATUS) & STATUS_FULL)
        inb(KEYBOARD_DATA);
    irq_enable(IRQ_KEYBOARD);
}

void keyboard_interrupt(void)
{
    static bool shift;
    uint8_t code = inb(KEYBOARD_DATA), key = code & ~KEY_RELEASED;
    bool pressed = !(code & KEY_RELEASED);
    if (key == KEY_LEFT_SHIFT || key == KEY_RIGHT_SHIFT)
        shift = pressed;
    else if (pressed && key < sizeof plain)
        typed(shift ? shifted[key] : plain[key]);
    after_input();
}

enum { COM1 = 0x3f8, COM1_INTERRUPTS = COM1 + 1, COM1_STATUS = COM1 + 5, COM1_READY = 1, COM1_ABSENT = 0xff };

void serial_interrupt(void)
{
    uint8_t status;
    while (((status = inb(COM1_STATUS)) & COM1_READY) && status != COM1_ABSENT) {
        char c = (char)inb(COM1);
        typed(c == '\r' ? '\n' : c == 0x7f ? '\b' : c);
    }
    after_input();
}

void serial_init(void)
{
    outb(COM1_INTERRUPTS, 1);
    irq_enable(IRQ_SERIAL);
}

int keyboard_getc(void)
{
    int c = -1;
    preempt_disable();
    while (ring_in == ring_out && !current->task->dying)
        block_on(&input.waiters, THREAD_WAITING);
    if (ring_in != ring_out)
        c = ring[ring_out++ % RING_SIZE];
    preempt_enable();
    return c;
}
