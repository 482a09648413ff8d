/* Files of a btrfs are renamed over one another, written and removed at once; its checker finds nothing wrong afterwards. */
#include "filesystem.h"

static void setup(void)
{
    disk_mount("btrfs", NULL);
    disk_prepare();
}

static void check(void) { disk_check((char *[]){"/bin/btrfs", "check", "--readonly", disk_device, NULL}); }

const struct rockfall_test rockfall_test = {setup, {disk_first, disk_second}, check};
