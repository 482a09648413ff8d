/* From the boot loader to the first program. */
#include "../lib/string.h"
#include "console.h"
#include "heap.h"
#include "loader.h"
#include "machine.h"
#include "multiboot.h"
#include "panic.h"
#include "task.h"
#include "timer.h"
#include "trap.h"
#include "vm.h"
#include "x86.h"

enum { COMMAND_LINE_MAX = 256 };

static char command_line[COMMAND_LINE_MAX];

/* The value of `name` on the command line (name=value, words separated by spaces), with its length; NULL if absent. */
static const char *option(const char *name, int *length)
{
    size_t n = strlen(name);
    for (const char *word = command_line; *word; word++) {
        if ((word == command_line || word[-1] == ' ') && strncmp(word, name, n) == 0 && word[n] == '=') {
            const char *value = word + n + 1;
            for (*length = 0; value[*length] && value[*length] != ' ';)
                ++*length;
            return value;
        }
    }
    return NULL;
}

/* Length of a tick in periods of the timer's 1.193182 MHz clock. */
static int tick_divisor(void)
{
    int length, n = 0;
    const char *value = option("tick", &length);
    for (int i = 0; value && i < length && value[i] >= '0' && value[i] <= '9'; i++)
        n = n * 10 + (value[i] - '0');
    return n >= 100 && n <= 0xffff ? n : TIMER_DIVISOR;
}

static void add_arg(struct args *args, const char *s, int length)
{
    if (args->size + length + 1 > ARGS_SIZE_MAX)
        panic("the name of the program to run is too long");
    memcpy(args->strings + args->size, s, (size_t)length);
    args->strings[args->size + length] = '\0';
    args->size += length + 1;
    args->count++;
}

/* Starts init, which starts the shell. With run=NAME on the command line, the shell runs just that. */
static void start_init(void)
{
    static struct args args;
    struct ureg registers;
    int length;
    const char *program = option("run", &length);
    add_arg(&args, "init", 4);
    if (program)
        add_arg(&args, program, length);
    uint32_t *directory = load_program("init", &args, &registers);
    init_task = directory ? task_create(directory) : NULL;
    struct thread *thread = init_task ? thread_create(init_task, &registers) : NULL;
    if (!thread)
        panic("cannot start init");
    init_task->tid = thread->tid;
    init_task->parent = init_task;
    thread_launch(thread, false);
}

void kernel_main(const struct multiboot *boot)
{
    if (boot->flags & MULTIBOOT_COMMAND_LINE) {
        const char *line = (const char *)boot->command_line;
        for (int i = 0; i < COMMAND_LINE_MAX - 1 && line[i]; i++)
            command_line[i] = line[i];
    }
    modules_init(boot);
    console_init();
    frames_init(boot->flags & MULTIBOOT_MEMORY ? 1024 + boot->memory_upper_kib : USER_START / 1024);
    heap_init();
    segments_init();
    vm_init();
    traps_init();
    irq_init();
    keyboard_init();
    serial_init();
    timer_init(tick_divisor());
    start_init();
    sched_start();
}
