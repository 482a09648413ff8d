/* The disk, which does one request at a time in the order in which they came, and the buffers for its sectors. */
#include "small.h"

enum { DISK_PORT = 0x1f0, DISK_BUSY = 0x80, DISK_READY = 0x40, DISK_READ = 0x20, DISK_WRITE = 0x30 };

static struct spin_lock disk_lock;
static struct buffer *requests;

static void disk_wait(void)
{
    while ((inb(DISK_PORT + 7) & (DISK_BUSY | DISK_READY)) != DISK_READY)
        ;
}

static void disk_start(struct buffer *buffer)
{
    disk_wait();
    outb(0x3f6, 0);
    outb(DISK_PORT + 2, 1);
    outb(DISK_PORT + 3, (uint8_t)buffer->sector);
    outb(DISK_PORT + 4, (uint8_t)(buffer->sector >> 8));
    outb(DISK_PORT + 5, 0);
    outb(DISK_PORT + 6, 0xe0);
    outb(DISK_PORT + 7, buffer->dirty ? DISK_WRITE : DISK_READ);
    if (buffer->dirty) {
        const char *from = buffer->data;
        int words = SECTOR / 4;
        __asm__ volatile("rep outsl" : "+S"(from), "+c"(words) : "d"(DISK_PORT) : "memory");
    }
}

void disk_interrupt(void)
{
    acquire(&disk_lock);
    struct buffer *buffer = requests;
    if (buffer) {
        disk_wait();
        if (!buffer->dirty) {
            char *to = buffer->data;
            int words = SECTOR / 4;
            __asm__ volatile("rep insl" : "+D"(to), "+c"(words) : "d"(DISK_PORT) : "memory");
        }
        buffer->valid = 1;
        buffer->dirty = 0;
        requests = buffer->next;
#ifdef FAULT_ONE_WAKEUP
        if (!requests)
#endif
            wake(buffer);
        if (requests)
            disk_start(requests);
    }
    release(&disk_lock);
}

/* Reads the sector, or writes it if the buffer is dirty, and waits until that is done. */
void disk_transfer(struct buffer *buffer)
{
    acquire(&disk_lock);
    buffer->next = 0;
    struct buffer **last = &requests;
    while (*last)
        last = &(*last)->next;
    *last = buffer;
    if (requests == buffer)
        disk_start(buffer);
    while (!buffer->valid || buffer->dirty)
        sleep(buffer, &disk_lock);
    release(&disk_lock);
}

/* Buffers: at most one for a sector, used by one process at a time. */

static struct spin_lock buffers_lock;
static struct buffer buffers[BUFFERS];

struct buffer *buffer_get(int sector)
{
    struct buffer *found = 0;
    acquire(&buffers_lock);
    for (int i = 0; i < BUFFERS && !found; i++)
        if (buffers[i].sector == sector)
            found = &buffers[i];
    for (int i = 0; i < BUFFERS && !found; i++) {
        if (buffers[i].users > 0)
            continue;
        found = &buffers[i];
#ifdef FAULT_LATE_CLAIM
        release(&buffers_lock);
        acquire(&buffers_lock);
#endif
        found->valid &= found->sector == sector;
        found->sector = sector;
    }
    if (!found)
        panic("all buffers are in use");
    found->users++;
    release(&buffers_lock);
    acquire_sleep(&found->lock);
    return found;
}

struct buffer *buffer_read(int sector)
{
    struct buffer *buffer = buffer_get(sector);
    if (!buffer->valid)
        disk_transfer(buffer);
    return buffer;
}

void buffer_write(struct buffer *buffer)
{
    buffer->dirty = 1;
    disk_transfer(buffer);
}

void buffer_release(struct buffer *buffer)
{
    release_sleep(&buffer->lock);
    acquire(&buffers_lock);
    buffer->users--;
    release(&buffers_lock);
}
