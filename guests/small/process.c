/* What becomes of a process: forked, given a program, ended and waited for. */
#include "small.h"

void fork_return(void)
{
    release(&table);
}

/* A process that only lacks its program and its registers; the caller lets it run. */
struct process *allocate(void)
{
    static int last_id;
    struct process *process = 0;
    acquire(&table);
    for (int i = 0; i < PROCESSES && !process; i++)
        if (processes[i].state == UNUSED)
            process = &processes[i];
    if (!process)
        panic("too many processes");
    process->state = EMBRYO;
    process->id = ++last_id;
    process->parent = current;
    release(&table);

    process->directory = page_alloc();
    process->table = page_alloc();
    process->stack = page_alloc();
    fill(process->directory, 0, PAGE);
    fill(process->table, 0, PAGE);
    process->directory[0] = LARGE | WRITABLE | PRESENT;
    process->directory[USER >> 22] = (uint32_t)process->table | FOR_USERS | WRITABLE | PRESENT;
    for (int i = 0; i < USER_PAGES; i++)
        process->table[i] = (uint32_t)page_alloc() | FOR_USERS | WRITABLE | PRESENT;
    process->frame = (struct frame *)(process->stack + PAGE) - 1;
    uint32_t *sp = (uint32_t *)process->frame;
    *--sp = (uint32_t)trap_return;
    *--sp = (uint32_t)fork_return;
    for (int i = 0; i < 4; i++)
        *--sp = 0;
    process->stack_pointer = sp;
    return process;
}

static void *user_page(const struct process *process, int page)
{
    return (void *)(process->table[page] & ~(PAGE - 1));
}

void clear(struct process *process)
{
    for (int i = 0; i < USER_PAGES; i++)
        page_free(user_page(process, i));
    page_free(process->table);
    page_free(process->directory);
    page_free(process->stack);
    process->killed = 0;
    process->state = UNUSED;
}

static void let_run(struct process *process)
{
    acquire(&table);
    process->state = RUNNABLE;
    release(&table);
}

int sys_fork(void)
{
    struct process *child = allocate();
#ifdef FAULT_EARLY_CHILD
    let_run(child);
#endif
    for (int i = 0; i < USER_PAGES; i++)
        copy(user_page(child, i), user_page(current, i), PAGE);
    copy(child->name, current->name, NAME);
    *child->frame = *current->frame;
    child->frame->eax = 0;
    int id = child->id;
#ifndef FAULT_EARLY_CHILD
    let_run(child);
#endif
#ifdef FORK_GIVES_BACK
    clear(allocate());
#endif
    return id;
}

int sys_exit(void)
{
#ifdef EXIT_READS
    /* As a process does that gives its folder back. */
    buffer_release(buffer_read(0));
#endif
    acquire(&table);
    for (int i = 0; i < PROCESSES; i++)
        if (processes[i].parent == current)
            processes[i].parent = &processes[0];
    wake_locked(current->parent);
    wake_locked(&processes[0]);
    current->state = ZOMBIE;
    sched();
    return 0;
}

/* The number of a child that has ended, or -1 if there is none to wait for. */
int sys_wait(void)
{
    acquire(&table);
    for (;;) {
        int children = 0;
        for (int i = 0; i < PROCESSES; i++) {
            struct process *child = &processes[i];
            if (child->state == UNUSED || child->parent != current)
                continue;
            children++;
            if (child->state == ZOMBIE) {
                int id = child->id;
                clear(child);
                child->parent = 0;
                release(&table);
                return id;
            }
        }
        if (!children) {
            release(&table);
            return -1;
        }
        sleep(current, &table);
    }
}

static int same(const char *a, const char *b)
{
    while (*a && *a == *b)
        a++, b++;
    return *a == *b;
}

/* A line of the directory. */
struct program {
    char name[NAME];
    int sector, sectors;
};

int sys_exec(const char *name)
{
    char wanted[NAME];
    copy(wanted, name, NAME);
    wanted[NAME - 1] = 0;
    struct buffer *directory = buffer_read(0);
    const struct program *programs = (const void *)directory->data;
    struct program found = {{0}, 0, 0};
    for (unsigned i = 0; i < SECTOR / sizeof *programs; i++)
        if (programs[i].sectors && same(programs[i].name, wanted))
            found = programs[i];
    buffer_release(directory);
    if (!found.sectors)
        return -1;
    char *image = user_page(current, 0);
    fill(image, 0, PAGE);
    for (int i = 0; i < found.sectors && i < PAGE / SECTOR; i++) {
        struct buffer *part = buffer_read(found.sector + i);
        copy(image + i * SECTOR, part->data, SECTOR);
        buffer_release(part);
    }
    copy(current->name, found.name, NAME);
    current->frame->eip = USER;
    current->frame->esp = USER + USER_PAGES * PAGE;
    return 0;
}


/* Executes the shell. */
__asm__(".data\n"
        "first_code:\n"
        "  movl $4, %eax\n"
        "  movl $0x40000000 + first_name - first_code, %ebx\n"
        "  int $0x40\n"
        "1: jmp 1b\n"
        "first_name: .asciz \"sh\"\n"
        "first_end:\n"
        ".previous\n");
extern const char first_code[], first_end[];

void first_process(void)
{
    struct process *process = allocate();
    copy(user_page(process, 0), first_code, first_end - first_code);
    fill(process->frame, 0, sizeof *process->frame);
    process->frame->cs = USER_CODE;
    process->frame->ds = process->frame->es = process->frame->ss = USER_DATA;
    process->frame->eflags = FLAG_INTERRUPTS;
    process->frame->eip = USER;
    process->frame->esp = USER + USER_PAGES * PAGE;
    let_run(process);
}
