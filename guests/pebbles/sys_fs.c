/* Files, or rather their names: see fs.h. The closed tree is meant where a path begins with a '/'. */
#include "fs.h"
#include "syscall.h"

enum { PATH_MAX = 2 * FS_NAME_MAX };

static bool get_path(char *path, uint32_t from)
{
    return copy_string_from_user(path, from, PATH_MAX) > 0;
}

int sys_create(struct ureg *u)
{
    char path[PATH_MAX];
    if (!get_path(path, u->esi))
        return SYSCALL_ERROR;
    return path[0] == '/' ? vfs_mkdir(path + 1) : fs_create(path);
}

int sys_remove(struct ureg *u)
{
    char path[PATH_MAX];
    if (!get_path(path, u->esi))
        return SYSCALL_ERROR;
    return path[0] == '/' ? vfs_rmdir(path + 1) : fs_remove(path);
}

/* The names in a root, each with its NUL, and a last NUL. */
int sys_readdir(struct ureg *u)
{
    uint32_t packet[3];
    char root[2];
    if (!get_args(u, packet, 3) || copy_string_from_user(root, packet[0], sizeof root) < 0 || packet[1] == 0)
        return SYSCALL_ERROR;
    struct listing out = {.to = packet[2], .left = packet[1] - 1};
    int result = root[0] == '/' ? vfs_readdir(&out) : fs_readdir(&open_root, &out);
    return result == 0 && copy_to_user(out.to, "", 1) ? 0 : SYSCALL_ERROR;
}
