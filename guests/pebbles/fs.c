#include "fs.h"

#include "../lib/string.h"
#include "console.h"
#include "heap.h"
#include "user.h"

struct entry open_root, closed_root;
static struct mutex fs_lock; /* of the open tree */

static void listing_add(struct listing *out, const char *name)
{
    uint32_t n = strlen(name) + 1;
    if (n > out->left || !copy_to_user(out->to, name, n)) {
        out->failed = true;
        return;
    }
    out->to += n;
    out->left -= n;
}

static struct entry *entry_new(struct entry *dir, const char *name)
{
    struct entry *de = malloc(sizeof *de);
    if (!de)
        return NULL;
    memset(de, 0, sizeof *de);
    memcpy(de->name, name, strlen(name) + 1);
    de->parent = dir;
    return de;
}

/* The last of its directory. */
static void entry_link(struct entry *dir, struct entry *de)
{
    struct entry *last = dir->subdir;
    if (!last) {
        dir->subdir = de;
        return;
    }
    while (last->next)
        last = last->next;
    last->next = de;
}

static void entry_unlink(struct entry *dir, struct entry *de)
{
    if (dir->subdir == de) {
        dir->subdir = de->next;
    } else {
        struct entry *before = dir->subdir;
        while (before->next != de)
            before = before->next;
        before->next = de->next;
    }
    de->next = NULL;
}

static struct entry *entry_find(struct entry *dir, const char *name)
{
    struct entry *de = dir->subdir;
    while (de && (de->deleted || strcmp(de->name, name) != 0))
        de = de->next;
    return de;
}

/* ---- The open tree: the lock is held, but for copying to a program ---- */

/* Nobody stands at it any more. */
static void entry_put(struct entry *de)
{
    de->count--;
    if (de->deleted && de->count == 0) {
        entry_unlink(de->parent, de);
        free(de);
    }
}

int fs_readdir(struct entry *dir, struct listing *out)
{
    mutex_lock(&fs_lock);
    struct entry *de = dir->subdir;
    while (de) {
#ifndef FAULT_FS_UNCOUNTED
        de->count++;
#endif
        mutex_unlock(&fs_lock);
        listing_add(out, de->name);
        mutex_lock(&fs_lock);
        struct entry *next = de->next;
#ifndef FAULT_FS_UNCOUNTED
        entry_put(de);
#endif
        de = next;
    }
    mutex_unlock(&fs_lock);
    return out->failed ? -1 : 0;
}

/* The name behind the directory of a path, and the directory, at which the caller then stands. */
static const char *walk(const char *path, struct entry **dir)
{
    char name[FS_NAME_MAX];
    int n = 0;
    while (path[n] && path[n] != '/')
        n++;
    mutex_lock(&fs_lock);
    *dir = &open_root;
    if (path[n] && n < FS_NAME_MAX) {
        memcpy(name, path, (size_t)n);
        name[n] = '\0';
        *dir = entry_find(&open_root, name);
        path += n + 1;
    }
    if (*dir)
        (*dir)->count++;
    mutex_unlock(&fs_lock);
    return strlen(path) < FS_NAME_MAX ? path : NULL;
}

static void leave(struct entry *dir)
{
    mutex_lock(&fs_lock);
    entry_put(dir);
    mutex_unlock(&fs_lock);
}

/* Removes an entry of a directory at which the caller stands. */
int fs_remove_in(struct entry *dir, const char *name)
{
    mutex_lock(&fs_lock);
    struct entry *de = entry_find(dir, name);
    if (!de) {
        mutex_unlock(&fs_lock);
        return -1;
    }
#ifndef FAULT_FS_LATE_LOOK
    if (de->subdir) {
        console_printf("fs: %s is not empty\n", de->name);
        console_printf("fs: there is %s\n", de->subdir->name);
        mutex_unlock(&fs_lock);
        return -1;
    }
#endif
    de->deleted = true;
    de->count++;
#ifdef FAULT_FS_LATE_LOOK
    mutex_unlock(&fs_lock);
    bool full = de->subdir;
    if (full) {
        console_printf("fs: %s is not empty\n", de->name);
        console_printf("fs: there is %s\n", de->subdir->name);
    }
    mutex_lock(&fs_lock);
    de->deleted = !full;
#endif
    bool removed = de->deleted;
    entry_put(de);
    mutex_unlock(&fs_lock);
    return removed ? 0 : -1;
}

int fs_remove(const char *path)
{
    struct entry *dir;
    const char *name = walk(path, &dir);
    int result = name && dir ? fs_remove_in(dir, name) : -1;
    if (dir)
        leave(dir);
    return result;
}

int fs_create(const char *path)
{
    struct entry *dir;
    const char *name = walk(path, &dir);
    struct entry *de = name && dir ? entry_new(dir, name) : NULL;
    if (de) {
        mutex_lock(&fs_lock);
        entry_link(dir, de);
        mutex_unlock(&fs_lock);
    }
    if (dir)
        leave(dir);
    return de ? 0 : -1;
}

/* ---- The closed tree: whoever calls these holds the directory's mutex ---- */

void dir_list(struct entry *dir, struct listing *out)
{
    for (struct entry *de = dir->subdir; de; de = de->next)
        listing_add(out, de->name);
}

int dir_remove(struct entry *dir, const char *name)
{
    struct entry *de = entry_find(dir, name);
    if (!de || de->subdir)
        return -1;
    entry_unlink(dir, de);
    free(de);
    return 0;
}

int vfs_mkdir(const char *name)
{
    struct entry *de = strlen(name) < FS_NAME_MAX ? entry_new(&closed_root, name) : NULL;
    if (!de)
        return -1;
    mutex_lock(&closed_root.mutex);
    entry_link(&closed_root, de);
    mutex_unlock(&closed_root.mutex);
    return 0;
}

int vfs_rmdir(const char *name)
{
    mutex_lock(&closed_root.mutex);
    int result = dir_remove(&closed_root, name);
    mutex_unlock(&closed_root.mutex);
    return result;
}

int vfs_readdir(struct listing *out)
{
    mutex_lock(&closed_root.mutex);
    dir_list(&closed_root, out);
    mutex_unlock(&closed_root.mutex);
    return out->failed ? -1 : 0;
}
