/* What the benchmark guests share: types, and the conversation with whoever measures them. */
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
/* As wide as a register. */
typedef unsigned long word;

#define NOINLINE __attribute__((noinline))
#define LEN(array) (sizeof(array) / sizeof((array)[0]))

/* The guest's own program; `repeat` comes from the command line. */
void guest_main(u32 repeat);

/*
 * The end of a phase. Sends one byte and halts until a byte comes back, so that the time of a phase is the
 * processor time between two halts, whatever the host was doing meanwhile.
 */
void mark(const char *phase, u32 checksum);
