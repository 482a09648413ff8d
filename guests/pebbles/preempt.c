#include "preempt.h"

#include "panic.h"
#include "thread.h"
#include "x86.h"

volatile int preempt_depth;
bool interrupts_were_on;

#ifdef DESIGN_PREEMPT_FLAG

void preempt_disable(void)
{
    preempt_depth++; /* one instruction: the timer sees it before or after */
}

void preempt_enable(void)
{
    assert(preempt_depth > 0);
    preempt_depth--;
}

bool preempt_allows_wakeup(void)
{
    return preempt_depth == 0 || idling;
}

#else

void preempt_disable(void)
{
    bool on = interrupts_enabled();
    disable_interrupts();
    if (preempt_depth++ == 0)
        interrupts_were_on = on;
}

void preempt_enable(void)
{
    assert(preempt_depth > 0 && !interrupts_enabled());
    if (--preempt_depth == 0 && interrupts_were_on)
        enable_interrupts();
}

bool preempt_allows_wakeup(void)
{
    return true; /* or the interrupt would not have come */
}

#endif
