/* Two writers and a reader of one pipe: what is written at once arrives in one piece, and nothing is lost. */
#include <unistd.h>

#include "rockfall_test.h"

#define MESSAGES 8

struct message {
    int writer, number;
};

static int ends[2];
static int received[2];
static int in_order = 1;

static void setup(void)
{
    expect(pipe(ends) == 0);
}

static void send_all(int writer)
{
    for (int number = 0; number < MESSAGES; number++) {
        struct message message = {writer, number};
        expect(write(ends[1], &message, sizeof message) == sizeof message);
    }
}

static void first_writer(void)
{
    send_all(0);
}

static void second_writer(void)
{
    send_all(1);
}

static void reader(void)
{
    for (int i = 0; i < 2 * MESSAGES; i++) {
        struct message message;
        expect(read(ends[0], &message, sizeof message) == sizeof message);
        in_order &= message.number == received[message.writer & 1]++;
    }
}

static void check(void)
{
    expect(received[0] == MESSAGES);
    expect(received[1] == MESSAGES);
    expect(in_order);
}

const struct rockfall_test rockfall_test = {setup, {reader, first_writer, second_writer}, check};
