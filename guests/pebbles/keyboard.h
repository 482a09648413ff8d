/* Characters typed, on the keyboard or on the serial line. */
#ifndef KEYBOARD_H
#define KEYBOARD_H

int keyboard_getc(void);  /* waits for the next character; -1 if the task is killed meanwhile */
void keyboard_wake(void); /* wakes those who wait if there is something to read; preemption disabled */

#endif
