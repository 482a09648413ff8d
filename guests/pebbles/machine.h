/* Segments, interrupt controller, and the power switch. */
#ifndef MACHINE_H
#define MACHINE_H

#include <stdint.h>

enum { IRQ_TIMER = 0, IRQ_KEYBOARD = 1, IRQ_SERIAL = 4, IRQ_VECTOR = 0x20 };

void segments_init(void);
void segments_set_kernel_stack(void *top); /* where a trap from user mode starts pushing */

void irq_init(void);
void irq_enable(int irq);
void irq_acknowledge(void);

void machine_off(void) __attribute__((noreturn));

#endif
