/* data_double.c — stands in for spx-viperblock-data in the test of volumes that end their
 *                 process: it opens everything and does nothing, but a volume whose id ends in
 *                 "dead" aborts it. */
#include "blk/ctl.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define LISTENER 3

static struct ctl_state disks[CTL_MAX_DISKS];

static void answer(int sock, const struct ctl_head *to, int rc)
{
    union ctl_msg m = {.h = {.op = CTL_RESULT, .seq = to->seq, .disk = to->disk, .rc = rc}};
    (void)!ctl_send(sock, &m, NULL, 0);
}

static void welcome(int sock)
{
    union ctl_msg m = {.h = {.op = CTL_WELCOME}};
    int fd = memfd_create("slots", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)CTL_N_SLOTS * (off_t)BLK_BLOCK) != 0) {
        _exit(1);
    }
    m.welcome.pid = (uint32_t)getpid();
    for (size_t i = 0; i < CTL_MAX_DISKS; i++) {
        m.welcome.n_disks += disks[i].size > 0;
    }
    (void)!ctl_send(sock, &m, &fd, 1);
    close(fd);
}

static void tell(int sock)
{
    for (size_t i = 0; i < CTL_MAX_DISKS; i++) {
        if (disks[i].size > 0) {
            union ctl_msg m = {.state = disks[i]};
            (void)!ctl_send(sock, &m, NULL, 0);
        }
    }
}

static void handle(int sock, const union ctl_msg *m)
{
    struct ctl_state *d = &disks[m->h.disk % CTL_MAX_DISKS];
    switch (m->h.op) {
    case CTL_OPEN:
        if (strstr(m->open.id, "dead")) {
            abort();
        }
        *d = (struct ctl_state){.h = {.op = CTL_DISK_STATE, .disk = m->h.disk},
                                .size = m->open.size};
        memcpy(d->id, m->open.id, sizeof(d->id));
        break;
    case CTL_CLOSE: d->size = 0; break;
    case CTL_QUIT: answer(sock, &m->h, 0); _exit(0);
    default: break;
    }
    answer(sock, &m->h, 0);
    tell(sock);
}

int main(void)
{
    for (;;) {
        struct pollfd p = {.fd = LISTENER, .events = POLLIN};
        (void)poll(&p, 1, -1);
        int sock = accept4(LISTENER, NULL, NULL, SOCK_CLOEXEC);
        if (sock < 0) {
            continue;
        }
        welcome(sock);
        for (int rc = 0; rc == 0 || rc == -EAGAIN;) {
            union ctl_msg m;
            int fds[CTL_MAX_FDS];
            size_t n = 0;
            p = (struct pollfd){.fd = sock, .events = POLLIN};
            (void)poll(&p, 1, -1);
            rc = ctl_recv(sock, false, &m, fds, &n);
            if (rc == 0) {
                handle(sock, &m);
                for (size_t i = 0; i < n; i++) {
                    close(fds[i]);
                }
            }
        }
        close(sock);
    }
}
