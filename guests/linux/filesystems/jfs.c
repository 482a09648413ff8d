/* Files of a jfs are renamed over one another, written and removed at once; its checker finds nothing wrong afterwards. */
#include "filesystem.h"

static void setup(void)
{
    disk_mount("jfs", NULL);
    disk_prepare();
}

static void check(void) { disk_check((char *[]){"/bin/fsck.jfs", "-n", disk_device, NULL}); }

const struct rockfall_test rockfall_test = {setup, {disk_first, disk_second}, check};
