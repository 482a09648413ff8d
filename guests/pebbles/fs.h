/*
 * Names in directories, in memory: two small trees that are locked in two ways.
 *
 * The open tree has one lock for all of it, which nobody holds while names are copied to a program: whoever lists a directory
 * counts itself in the entry it stands at, and an entry with a count outlives its removal. The closed tree has a mutex in each
 * directory, which its callers hold around everything, so that what they call needs no lock.
 */
#ifndef FS_H
#define FS_H

#include <stdbool.h>
#include <stdint.h>

#include "sync.h"

enum { FS_NAME_MAX = 16 };

struct entry {
    struct entry *next;   /* in its directory */
    char name[FS_NAME_MAX];
    struct entry *subdir; /* the first entry in it */
    struct entry *parent;
    int count;            /* of those who stand at it without holding the lock */
    bool deleted;         /* the last of these frees it */
    struct mutex mutex;   /* in the closed tree: of what is in it */
};

/* Where the names go that a program asked for. */
struct listing {
    uint32_t to, left;
    bool failed;
};

extern struct entry open_root, closed_root;

/* The open tree. A path has at most one directory: "a" or "a/b". All give 0, or -1 if that is not there or not possible. */
int fs_create(const char *path);
int fs_remove(const char *path);
int fs_readdir(struct entry *dir, struct listing *out);

/* The closed tree, which has directories in its root only. */
int vfs_mkdir(const char *name);
int vfs_rmdir(const char *name);
int vfs_readdir(struct listing *out);

#endif
