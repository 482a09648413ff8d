/*
 * A module for a test: the device /dev/NAME, on which `ioctl` number 0x5200 + n calls function n of the module. (The kernel
 * keeps small numbers for itself.)
 *
 * Each module here has a fault of a kind that real kernels have had; with MENDED defined the same source is right. A test
 * beside it drives it from two processors.
 */
#ifndef ROCKFALL_MODULE_H
#define ROCKFALL_MODULE_H

#include <linux/fs.h>
#include <linux/kernel.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/slab.h>

/* What an object of a module is filled with while it is allocated, so that whoever reads it can tell. */
#define ALIVE 0x600d600d600d600dUL
#define WORDS 8

struct filled {
    unsigned long words[WORDS];
};

static inline struct filled *filled_new(void)
{
    struct filled *object = kmalloc(sizeof *object, GFP_KERNEL);
    int i;

    for (i = 0; object && i < WORDS; i++)
        object->words[i] = ALIVE;
    return object;
}

/* 0, or the error that says that the object was given back under our hands. */
static inline long filled_look(const struct filled *object)
{
    int i;

    for (i = 0; i < WORDS; i++)
        if (READ_ONCE(object->words[i]) != ALIVE)
            return -EIO;
    return 0;
}

/* The barrier that a faulty module lacks: there the compiler alone keeps the order. */
static inline void mended_barrier(void)
{
#ifdef MENDED
    smp_mb();
#else
    barrier();
#endif
}

#define ROCKFALL_FIRST 0x5200

typedef long (*rockfall_function)(unsigned long argument);

/* The module NAME with these functions, and how it begins and ends. */
#define ROCKFALL_MODULE(name, begin, end, ...)                                                                        \
    static const rockfall_function rockfall_functions[] = {__VA_ARGS__};                                              \
    static long rockfall_ioctl(struct file *file, unsigned int number, unsigned long argument)                        \
    {                                                                                                                 \
        unsigned int function = number - ROCKFALL_FIRST;                                                              \
        return function < ARRAY_SIZE(rockfall_functions) ? rockfall_functions[function](argument) : -ENOTTY;          \
    }                                                                                                                 \
    static const struct file_operations rockfall_operations = {                                                       \
        .owner = THIS_MODULE,                                                                                         \
        .unlocked_ioctl = rockfall_ioctl,                                                                             \
    };                                                                                                                \
    static struct miscdevice rockfall_device = {MISC_DYNAMIC_MINOR, #name, &rockfall_operations};                     \
    static int __init rockfall_begin(void)                                                                            \
    {                                                                                                                 \
        int error = begin();                                                                                          \
        return error ? error : misc_register(&rockfall_device);                                                       \
    }                                                                                                                 \
    static void __exit rockfall_end(void)                                                                             \
    {                                                                                                                 \
        misc_deregister(&rockfall_device);                                                                            \
        end();                                                                                                        \
    }                                                                                                                 \
    module_init(rockfall_begin);                                                                                      \
    module_exit(rockfall_end);                                                                                        \
    MODULE_DESCRIPTION("a fault for tests of concurrency: " #name);                                                   \
    MODULE_LICENSE("GPL")

static inline int nothing_to_begin(void) { return 0; }
static inline void nothing_to_end(void) {}

#endif
