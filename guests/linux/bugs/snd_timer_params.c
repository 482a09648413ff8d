/* A sound timer gets new parameters while it is read: its queue is replaced. Needs the module snd-timer. */
#include <errno.h>
#include <fcntl.h>
#include <sound/asound.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "rockfall_test.h"

static int timer;

static int set(unsigned queue)
{
    struct snd_timer_params params = {.ticks = 1, .queue_size = queue, .filter = 1 << SNDRV_TIMER_EVENT_TICK};
    return ioctl(timer, SNDRV_TIMER_IOCTL_PARAMS, &params);
}

static void setup(void)
{
    struct snd_timer_select select = {.id = {.dev_class = SNDRV_TIMER_CLASS_GLOBAL, .device = SNDRV_TIMER_GLOBAL_SYSTEM}};
    timer = open("/dev/snd/timer", O_RDONLY | O_NONBLOCK);
    expect(timer >= 0);
    expect(ioctl(timer, SNDRV_TIMER_IOCTL_SELECT, &select) == 0);
    expect(set(64) == 0);
}

static void first(void) { expect(set(128) == 0); }
static void second(void) { expect(set(256) == 0); }

static void check(void)
{
    expect(ioctl(timer, SNDRV_TIMER_IOCTL_START) == 0);
    expect(ioctl(timer, SNDRV_TIMER_IOCTL_STOP) == 0);
}

const struct rockfall_test rockfall_test = {setup, {first, second}, check};
