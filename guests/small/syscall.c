/* What programs can ask for. */
#include "small.h"

static int now_ticks(void)
{
    interrupts_off();
    int now = ticks;
    interrupts_back();
    return now;
}

int sys_sleep(int length)
{
    for (int end = now_ticks() + length; now_ticks() < end;)
        yield();
    return 0;
}

int sys_print(const char *text)
{
    print(text);
    return 0;
}

int sys_read_line(char *line, int size)
{
    int length = 0;
    while (length < size - 1) {
        char key = read_key();
        if (key == '\n')
            break;
        line[length++] = key;
    }
    line[length] = 0;
    return length;
}

/* Adds to a number on the disk; what it is then. */
int sys_add(int number, int amount)
{
#ifdef POLITE_ADD
    /* No fault: everybody else goes first, many times. */
    for (int i = 0; i < 100; i++)
        yield();
#endif
    struct buffer *buffer = buffer_read(NUMBERS + number);
    int *place = (int *)buffer->data;
    if (amount) {
        *place += amount;
        buffer_write(buffer);
    }
    int sum = *place;
    buffer_release(buffer);
    return sum;
}

/* Who is killed ends at its next interrupt. */
static int sys_kill(int id)
{
    acquire(&table);
    for (int i = 0; i < PROCESSES; i++)
        if (processes[i].state != UNUSED && processes[i].id == id)
#ifdef FAULT_SPARED
            continue;
#else
            processes[i].killed = 1;
#endif
    release(&table);
    return 0;
}

int system_call(struct frame *frame)
{
    current->frame = frame;
    switch (frame->eax) {
    case 1:
        return sys_fork();
    case 2:
        return sys_exit();
    case 3:
        return sys_wait();
    case 4:
        return sys_exec((const char *)frame->ebx);
    case 5:
        return sys_sleep((int)frame->ebx);
    case 6:
        return sys_print((const char *)frame->ebx);
    case 7:
        return sys_read_line((char *)frame->ebx, (int)frame->ecx);
    case 8:
        return sys_add((int)frame->ebx, (int)frame->ecx);
    case 9:
        return sys_kill((int)frame->ebx);
    }
    return -1;
}
