/*
 * A file system for a test: an image from the initramfs is put on a loop device and mounted at /tmp/disk; after the test it is
 * taken off again and looked at by the file system's own checker. All that it needs is brought by
 *
 *     rockfall test VERSION --linux ext4.c --filesystem ext4
 *
 * or packed by hand:
 *
 *     rockfall linux image ext4 -o ext4.image
 *     rockfall linux pack ext4.c --kernel VERSION --module loop --module ext4 --file ext4.image=images/ext4 --program e2fsck
 */
#ifndef FILESYSTEM_H
#define FILESYSTEM_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rockfall_test.h"

#define DISK "/tmp/disk"

static char disk_device[32];

/* Unpacks an image: its size, then pieces, each with its place and length. */
static int image_unpack(const char *from, const char *to)
{
    static char piece[1 << 16];
    uint64_t size, place[2];
    char magic[16];
    int in = open(from, O_RDONLY), out = open(to, O_CREAT | O_RDWR, 0600);
    expect(in >= 0 && out >= 0);
    expect(read(in, magic, 16) == 16 && memcmp(magic, "rockfall sparse", 16) == 0 && read(in, &size, 8) == 8);
    expect(ftruncate(out, (off_t)size) == 0);
    while (read(in, place, 16) == 16) {
        while (place[1] > 0) {
            ssize_t got = read(in, piece, place[1] < sizeof piece ? place[1] : sizeof piece);
            if (got <= 0 || pwrite(out, piece, (size_t)got, (off_t)place[0]) != got) {
                expect(!"the image can be unpacked");
                return out;
            }
            place[0] += (uint64_t)got;
            place[1] -= (uint64_t)got;
        }
    }
    close(in);
    return out;
}

/* Mounts the packed image of a file system. */
static void disk_mount(const char *type, const char *options)
{
    char image[64];
    snprintf(image, sizeof image, "/images/%s", type);
    int backing = image_unpack(image, "/tmp/image");
    int control = open("/dev/loop-control", O_RDWR);
    int number = ioctl(control, LOOP_CTL_GET_FREE);
    expect(control >= 0 && number >= 0);
    snprintf(disk_device, sizeof disk_device, "/dev/loop%d", number);
    int device = open(disk_device, O_RDWR);
    expect(device >= 0 && ioctl(device, LOOP_SET_FD, backing) == 0);
    expect(mkdir(DISK, 0755) == 0);
    expect(mount(disk_device, DISK, type, 0, options) == 0);
    close(backing);
    close(control);
}

/* Takes the disk off and runs its checker, which must be content. With UNCHECKED it does not, so that what that takes can be
 * measured. */
static void disk_check(char *const words[])
{
#ifdef UNCHECKED
    (void)words;
#else
    int status = -1;
    expect(umount(DISK) == 0);
    pid_t checker = fork();
    if (checker == 0) {
        execv(words[0], words);
        _exit(127);
    }
    expect(waitpid(checker, &status, 0) == checker);
    expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
#endif
}

/* What two bodies do at once: each in one folder, with names that meet. */
static void disk_prepare(void)
{
    expect(mkdir(DISK "/a", 0755) == 0 && mkdir(DISK "/b", 0755) == 0);
    for (int i = 0; i < 2; i++) {
        int file = open(i ? DISK "/b/file" : DISK "/a/file", O_CREAT | O_RDWR, 0644);
        expect(file >= 0 && write(file, "content", 7) == 7);
        close(file);
    }
    expect(rename(DISK "/a/file", DISK "/a/warm") == 0 && rename(DISK "/a/warm", DISK "/a/file") == 0);
    sync();
}

static void disk_first(void)
{
    expect(rename(DISK "/a/file", DISK "/b/file") == 0);
}

static void disk_second(void)
{
    int file = open(DISK "/b/file", O_RDWR | O_APPEND);
    expect(file >= 0);
    expect(write(file, "more", 4) == 4);
    close(file);
    expect(unlink(DISK "/b/file") == 0 || errno == ENOENT);
}

#endif
