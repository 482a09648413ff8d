/* A packet with a header of its own is sent from a ring that the program still writes to. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rockfall_test.h"

#define FRAME 2048
#define PACKET 256

static int ring;
static struct tpacket2_hdr *frame;
static volatile struct virtio_net_hdr *header;

static void prepare(void)
{
    memset((void *)header, 0, sizeof *header);
    header->hdr_len = 14;
    frame->tp_len = sizeof *header + PACKET;
    __atomic_store_n(&frame->tp_status, TP_STATUS_SEND_REQUEST, __ATOMIC_SEQ_CST);
}

static void submit(void)
{
    long sent = send(ring, NULL, 0, MSG_DONTWAIT);
    expect(sent >= 0 || errno == EINVAL || errno == EAGAIN || errno == ENOBUFS);
}

static void setup(void)
{
    int version = TPACKET_V2, yes = 1;
    struct tpacket_req request = {.tp_block_size = 4096, .tp_block_nr = 1, .tp_frame_size = FRAME, .tp_frame_nr = 2};
    struct sockaddr_ll address = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL)};
    struct ifreq interface = {.ifr_name = "lo"};
    ring = socket(AF_PACKET, SOCK_RAW, 0);
    expect(ring >= 0);
    expect(ioctl(ring, SIOCGIFFLAGS, &interface) == 0);
    interface.ifr_flags |= IFF_UP;
    expect(ioctl(ring, SIOCSIFFLAGS, &interface) == 0);
    expect(setsockopt(ring, SOL_PACKET, PACKET_VERSION, &version, sizeof version) == 0);
    expect(setsockopt(ring, SOL_PACKET, PACKET_VNET_HDR, &yes, sizeof yes) == 0);
    expect(setsockopt(ring, SOL_PACKET, PACKET_TX_RING, &request, sizeof request) == 0);
    address.sll_ifindex = (int)if_nametoindex("lo");
    expect(bind(ring, (struct sockaddr *)&address, sizeof address) == 0);
    frame = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, ring, 0);
    expect(frame != MAP_FAILED);
    header = (void *)((char *)frame + TPACKET2_HDRLEN - sizeof(struct sockaddr_ll));
    /* The second frame first, so that the first is the next. */
    for (int warm = 0; warm < 2; warm++) {
        prepare();
        submit();
        frame = (void *)((char *)frame + (warm ? -FRAME : FRAME));
        header = (void *)((char *)frame + TPACKET2_HDRLEN - sizeof(struct sockaddr_ll));
    }
    prepare();
}

static void first(void) { submit(); }

/* Longer than the packet. */
static void second(void) { header->hdr_len = 60000; }

const struct rockfall_test rockfall_test = {setup, {first, second}, 0};
