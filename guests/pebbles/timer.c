/* The clock: channel 0 of the 8253 timer, the count of ticks, and those who sleep until a tick. */
#include "timer.h"

#include "keyboard.h"
#include "machine.h"
#include "preempt.h"
#include "task.h"
#include "trap.h"
#include "x86.h"

enum { PIT_CHANNEL_0 = 0x40, PIT_MODE = 0x43, PIT_SQUARE_WAVE = 0x36 };

static volatile uint32_t ticks;
static struct waitq sleepers;

void timer_init(int divisor)
{
    outb(PIT_MODE, PIT_SQUARE_WAVE);
    outb(PIT_CHANNEL_0, divisor & 0xff);
    outb(PIT_CHANNEL_0, (divisor >> 8) & 0xff);
    irq_enable(IRQ_TIMER);
}

uint32_t get_ticks(void)
{
    return ticks;
}

static void wake_sleepers(void)
{
    struct waitq early = {0};
    for (struct thread *t; (t = waitq_take(&sleepers));) {
        if ((int32_t)(ticks - t->wake_at) >= 0)
            unblock(t);
        else
            waitq_add(&early, t);
    }
    sleepers = early;
}

void timer_interrupt(void)
{
    ticks++;
    if (!preempt_allows_wakeup())
        return;
    preempt_disable();
    wake_sleepers();
    keyboard_wake();
    if (!idling)
        schedule();
    preempt_enable();
}

void sleep_until(uint32_t tick)
{
    preempt_disable();
    current->wake_at = tick;
    block_on(&sleepers, THREAD_SLEEPING);
    preempt_enable();
}
