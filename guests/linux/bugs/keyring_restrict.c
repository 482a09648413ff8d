/* A key is added to a keyring while the keyring is closed for additions: once it is closed, nothing appears in it. */
#include <linux/keyctl.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rockfall_test.h"

static long ring, keys_then;

static long ring_new(const char *name)
{
    return syscall(SYS_add_key, "keyring", name, NULL, 0, KEY_SPEC_PROCESS_KEYRING);
}

static long add(long to) { return syscall(SYS_add_key, "user", "key", "content", 7, to); }
static long restricted(long which) { return syscall(SYS_keyctl, KEYCTL_RESTRICT_KEYRING, which, NULL, NULL); }

/* Bytes of the list of keys. */
static long keys(long of)
{
    int list[16];
    return syscall(SYS_keyctl, KEYCTL_READ, of, list, sizeof list);
}

static void setup(void)
{
    long warm = ring_new("warm");
    expect(warm > 0 && add(warm) > 0 && restricted(warm) == 0 && keys(warm) == sizeof(int));
    ring = ring_new("ring");
    expect(ring > 0 && keys(ring) == 0);
}

static void first(void) { add(ring); }

static void second(void)
{
    expect(restricted(ring) == 0);
    keys_then = keys(ring);
}

static void check(void) { expect(keys(ring) == keys_then); }

const struct rockfall_test rockfall_test = {setup, {first, second}, check};
