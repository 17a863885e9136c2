/* Stands in for the manager of volumes: starts a data process, opens three disks in it and
 * serves them. plain: all there; crypt: the same, encrypted; lazy: everything still in its
 * source, which is this process, as fast as memory.
 *   host DATA_PROCESS FOLDER SIZE LAZY_SIZE QUEUES
 * Prints "ready PID". Standard input: "snap" begins a full snapshot of plain ("held NS";
 * "done" when all is uploaded), "end" forgets it, "again" opens lazy anew, with nothing there,
 * "fill" begins to bring what lazy lacks, as fast as the service does; end of input ends it. */
#include "base/num.h"
#include "base/time.h"
#include "blk/ctl.h"
#include "loop/child.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { PLAIN, CRYPT, LAZY, N_DISKS };
#define FILL_RATE (UINT64_C(64) << 20) /* bytes a second, as viperblock/base.c */
static const char *const names[N_DISKS] = {"plain", "crypt", "lazy"};
static const char *folder;
static uint64_t size[N_DISKS];
static unsigned n_queues;
static int ctl = -1;
static uint32_t seq;

static void die(const char *what)
{
    fprintf(stderr, "host: %s (%s)\n", what, strerror(errno));
    exit(1);
}

static uint64_t number(const char *text)
{
    uint64_t v = 0;
    if (num_u64(str_c(text), UINT64_MAX, &v) != 0) {
        die("a number is wrong");
    }
    return v;
}

static void path_of(const char *name, const char *what, char buf[PATH_MAX])
{
    if (snprintf(buf, PATH_MAX, "%s/%s%s", folder, name, what) >= PATH_MAX) {
        die("a long name");
    }
}

static int socket_at(const char *path, int type, bool is_listening)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(a.sun_path)) {
        die("the folder's name is too long for sockets");
    }
    memcpy(a.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    int rc = is_listening ? bind(fd, (struct sockaddr *)&a, sizeof(a))
                          : connect(fd, (struct sockaddr *)&a, sizeof(a));
    if (fd < 0 || rc != 0 || (is_listening && listen(fd, 16) != 0)) {
        die(path);
    }
    return fd;
}

/* ---- what the data process asks ---- */

static void answer(const struct ctl_head *h, enum ctl_op op, int rc)
{
    union ctl_msg m = {.h = *h};
    m.h.op = (uint16_t)op;
    m.h.rc = rc;
    m.h.arg = 0;
    if (ctl_send(ctl, &m, NULL, 0) != 0) {
        die("the data process does not take answers");
    }
}

/* Serves one message; a RESULT is given to the caller (true). */
static bool serve(union ctl_msg *m)
{
    int fds[CTL_MAX_FDS];
    size_t n = 0;
    int rc = ctl_recv(ctl, true, m, fds, &n);
    if (rc == -EAGAIN) {
        return false;
    }
    if (rc != 0) {
        errno = -rc;
        die("the data process is gone");
    }
    for (size_t i = 0; i < n; i++) {
        close(fds[i]);
    }
    switch (m->h.op) {
    case CTL_FETCH: answer(&m->h, CTL_FETCHED, CTL_FETCHED_DATA); break;
    case CTL_UPLOAD: answer(&m->h, CTL_STORED, 0); break;
    case CTL_SNAP_DONE: printf("done\n"); break;
    default: break;
    }
    return m->h.op == CTL_RESULT;
}

static struct ctl_result ask(union ctl_msg *m, const int *fds, size_t n_fds)
{
    m->h.seq = ++seq;
    if (ctl_send(ctl, m, fds, n_fds) != 0) {
        die("the data process does not take messages");
    }
    for (;;) {
        static union ctl_msg got;
        struct pollfd p = {ctl, POLLIN, 0};
        if (poll(&p, 1, 60000) != 1) {
            die("the data process does not answer");
        }
        if (serve(&got) && got.h.seq == seq) {
            if (got.h.rc < 0) {
                errno = -got.h.rc;
                die(got.result.text);
            }
            return got.result;
        }
    }
}

static union ctl_msg message(enum ctl_op op, unsigned disk)
{
    return (union ctl_msg){.h = {.op = (uint16_t)op, .disk = disk}};
}

/* ---- disks ---- */

static int file_at(const char *name, const char *what, uint64_t n, bool is_new)
{
    char path[PATH_MAX];
    path_of(name, what, path);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | (is_new ? O_TRUNC : 0), 0600);
    if (fd < 0 || (n > 0 && ftruncate(fd, (off_t)n) != 0)) {
        die(path);
    }
    return fd;
}

static void open_disk(unsigned i)
{
    bool is_lazy = i == LAZY;
    struct err err = ERR_INIT;
    int fds[4] = {file_at(names[i], "", size[i], is_lazy), file_at(names[i], ".map", 0, true),
                  memfd_create("run", MFD_CLOEXEC), file_at(names[i], ".aside", 0, true)};
    struct blk_map_opts o = {
        .size = size[i], .source_size = is_lazy ? size[i] : 0, .is_encrypted = i == CRYPT};
    if (blk_map_create(fds[1], &o, &err) != 0) {
        die(err.msg);
    }
    union ctl_msg m = message(CTL_OPEN, i);
    (void)snprintf(m.open.id, sizeof(m.open.id), "vol-%s", names[i]);
    m.open.size = size[i];
    m.open.n_queues = n_queues;
    m.open.flags = CTL_OPEN_MAP | CTL_OPEN_RUN | CTL_OPEN_ASIDE |
                   (i == CRYPT ? (uint32_t)CTL_OPEN_KEY : 0);
    for (unsigned k = 0; k < sizeof(m.open.key); k++) {
        m.open.key[k] = (uint8_t)(k * 7 + 1);
    }
    (void)ask(&m, fds, 4);
    for (unsigned k = 0; k < 4; k++) {
        close(fds[k]);
    }
    char path[PATH_MAX];
    path_of(names[i], ".sock", path);
    (void)unlink(path);
    int fd = socket_at(path, SOCK_STREAM, true);
    m = message(CTL_SERVE_VU, i);
    m.serve.uid = getuid();
    m.serve.n_queues = n_queues;
    (void)snprintf(m.serve.serial, sizeof(m.serve.serial), "vol-%s", names[i]);
    (void)ask(&m, &fd, 1);
    close(fd);
}

static void snap(enum ctl_op op, const char *id)
{
    union ctl_msg m = message(op, PLAIN);
    if (op == CTL_SNAP) {
        m.h.arg = 1;
        m.snap.n = 1;
        m.snap.v[0].disk = PLAIN;
        memcpy(m.snap.v[0].snap, id, strlen(id));
    } else {
        memcpy(m.h.snap, id, strlen(id));
    }
    struct ctl_result r = ask(&m, NULL, 0);
    if (op == CTL_SNAP) {
        printf("held %llu\n", (unsigned long long)r.value);
    }
}

static void command(const char *line)
{
    static unsigned n;
    char id[BLK_SNAP_ID];
    (void)snprintf(id, sizeof(id), "snap-%u", n);
    if (strcmp(line, "snap\n") == 0) {
        (void)snprintf(id, sizeof(id), "snap-%u", ++n);
        snap(CTL_SNAP, id);
        snap(CTL_SNAP_READ, id);
    } else if (strcmp(line, "end\n") == 0) {
        snap(CTL_SNAP_END, id);
        printf("ended\n");
    } else if (strcmp(line, "again\n") == 0) {
        union ctl_msg m = message(CTL_CLOSE, LAZY);
        m.h.arg = 1;
        (void)ask(&m, NULL, 0);
        open_disk(LAZY);
        printf("opened\n");
    } else if (strcmp(line, "fill\n") == 0) {
        union ctl_msg m = message(CTL_FILL, LAZY);
        m.h.arg = FILL_RATE;
        (void)ask(&m, NULL, 0);
        printf("filling\n");
    } else {
        die("which command?");
    }
}

int main(int argc, char **argv)
{
    char path[PATH_MAX], line[64];
    pid_t pid = 0;
    struct err err = ERR_INIT;
    static union ctl_msg m;
    if (argc != 6) {
        die("host DATA_PROCESS FOLDER SIZE LAZY_SIZE QUEUES");
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    folder = argv[2];
    size[PLAIN] = size[CRYPT] = number(argv[3]);
    size[LAZY] = number(argv[4]);
    n_queues = (unsigned)number(argv[5]);
    path_of("ctl", ".sock", path);
    int fd = socket_at(path, SOCK_SEQPACKET, true);
    const char *const args[] = {argv[1], "bench", NULL};
    const struct child_fd fds[] = {{fd, 3}};
    const struct child_opts o = {
        .argv = args, .fds = fds, .n_fds = 1, .err_fd = 2, .death_signal = SIGKILL};
    if (child_spawn(&o, &pid, &err) != 0) {
        die(err.msg);
    }
    ctl = socket_at(path, SOCK_SEQPACKET, false);
    for (m.h.op = 0; m.h.op != CTL_WELCOME;) {
        struct pollfd p = {ctl, POLLIN, 0};
        if (poll(&p, 1, 20000) != 1) {
            die("the data process does not start");
        }
        (void)serve(&m);
    }
    for (unsigned i = 0; i < N_DISKS; i++) {
        open_disk(i);
    }
    printf("ready %d\n", (int)pid);
    for (;;) {
        struct pollfd p[2] = {{ctl, POLLIN, 0}, {0, POLLIN, 0}};
        (void)poll(p, 2, -1);
        if (p[0].revents != 0) {
            (void)serve(&m);
        }
        if (p[1].revents != 0) {
            if (!fgets(line, sizeof(line), stdin)) {
                kill(pid, SIGKILL);
                return 0;
            }
            command(line);
        }
    }
}
