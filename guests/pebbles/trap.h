/* Traps: the gate between everything else and the kernel. */
#ifndef TRAP_H
#define TRAP_H

#include "../lib/ureg.h"

void traps_init(void);

/* syscall.c: runs a system call; false if there is none of that number. */
int syscall(struct ureg *u);

/* swexn.c: lets the program's own handler see a fault, if it has registered one. */
_Bool swexn_deliver(struct ureg *u);

void timer_init(int divisor);
void timer_interrupt(void);
void keyboard_init(void);
void keyboard_interrupt(void);
void serial_init(void);
void serial_interrupt(void);

#endif
