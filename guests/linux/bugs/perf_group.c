/* The leader of a group of events is closed while a member of the group is read with all others. */
#include <errno.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rockfall_test.h"

static int leader, member;

static int event_open(int group)
{
    struct perf_event_attr attributes = {
        .type = PERF_TYPE_SOFTWARE,
        .size = sizeof attributes,
        .config = PERF_COUNT_SW_DUMMY,
        .read_format = PERF_FORMAT_GROUP,
        .disabled = group < 0,
    };
    return (int)syscall(SYS_perf_event_open, &attributes, 0, -1, group, 0);
}

static void prepare(void)
{
    leader = event_open(-1);
    member = event_open(leader);
    expect(leader >= 0 && member >= 0);
}

static void setup(void)
{
    unsigned long values[8];
    prepare();
    expect(read(leader, values, sizeof values) > 0);
    close(leader);
    close(member);
    prepare();
}

static void first(void)
{
    unsigned long values[8];
    expect(read(member, values, sizeof values) > 0);
}

static void second(void) { expect(close(leader) == 0); }

static void check(void) { expect(close(member) == 0); }

const struct rockfall_test rockfall_test = {setup, {first, second}, check};
