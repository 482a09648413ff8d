/*
 * Touching user memory.
 *
 * Any address a program passes may be wrong, or become wrong because another of its threads removes the page. So nothing is
 * checked beforehand: the copy runs, and if it faults, the page fault handler resumes it at its failure exit.
 */
#ifndef USER_H
#define USER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool copy_from_user(void *to, uint32_t from, size_t n);
bool copy_to_user(uint32_t to, const void *from, size_t n);

/* Copies a string with its NUL; returns its length, or -1 for a bad address or a string of max bytes or more. */
int copy_string_from_user(char *to, uint32_t from, size_t max);

/* Could the program write there now? For an early refusal only; the copy is what counts. */
bool user_can_write(uint32_t address, size_t n);

/* Were we inside a copy when the fault at eip happened? Then where to go on. */
uint32_t user_copy_failure(uint32_t eip);

#endif
