#include "base/test.h"
#include "blk/blk_int.h"
#include "viperblock/data_sandbox.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>

/* ---- what each try is: 0 or the errno it got ---- */

static int result(long rc)
{
    return rc < 0 ? errno : 0;
}

static int try_open(void)
{
    return result(open("/etc/passwd", O_RDONLY | O_CLOEXEC));
}

static int try_open_dir(void)
{
    return result(open("/", O_PATH | O_CLOEXEC));
}

static int try_create(void)
{
    return result(open("/tmp/spx-data-sandbox", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
}

static int try_openat2(void)
{
    const uint64_t how[3] = {O_RDONLY};
    return result(syscall(SYS_openat2, AT_FDCWD, "/etc/passwd", how, sizeof(how)));
}

static int try_unlink(void)
{
    return result(unlink("/tmp/spx-data-sandbox"));
}

static int try_stat(void)
{
    struct stat st;
    return result(stat("/etc/passwd", &st));
}

static int try_exec(void)
{
    char *const argv[] = {(char *)(uintptr_t) "true", NULL};
    return result(execv("/bin/true", argv));
}

static int try_fork(void)
{
    long pid = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0L);
    if (pid == 0) {
        _exit(0);
    }
    return result(pid);
}

static int try_unix_socket(void)
{
    return result(socket(AF_UNIX, SOCK_STREAM, 0));
}

static int try_tcp_socket(void)
{
    return result(socket(AF_INET, SOCK_STREAM, 0));
}

static int spare_socket = -1; /* a socket made before, not connected */

static int try_connect(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX, .sun_path = "/run/x"};
    return result(connect(spare_socket, (struct sockaddr *)&a, sizeof(a)));
}

static int try_bind(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX, .sun_path = "/tmp/spx-data-sandbox"};
    return result(bind(spare_socket, (struct sockaddr *)&a, sizeof(a)));
}

static int try_ptrace(void)
{
    return result(ptrace(PTRACE_TRACEME, 0, NULL, NULL));
}

static int try_kill(void)
{
    return result(kill(getppid(), 0));
}

static int try_signal_thread(void)
{
    return result(syscall(SYS_tgkill, getppid(), getppid(), 0));
}

static int try_code(void)
{
    void *p = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? errno : 0;
}

static int try_code_later(void)
{
    void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? -1 : result(mprotect(p, 4096, PROT_READ | PROT_EXEC));
}

static int try_namespace(void)
{
    return result(unshare(CLONE_NEWUSER));
}

static int try_ring(void)
{
    struct io_uring_params p = {.flags = 0};
    return result(syscall(SYS_io_uring_setup, 8, &p));
}

static int try_register(void)
{
    return result(syscall(SYS_io_uring_register, spare_socket, 0, NULL, 0));
}

static int try_fcntl_owner(void)
{
    return result(fcntl(spare_socket, F_SETOWN, getppid()));
}

static int try_read_other(void)
{
    char b[8];
    struct iovec v = {.iov_base = b, .iov_len = sizeof(b)};
    return result(process_vm_readv(getppid(), &v, 1, &v, 1, 0));
}

static int try_dumpable(void)
{
    return result(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
}

static const struct {
    const char *name;
    int (*fn)(void);
    int want;
} tries[] = {
    {"open a file", try_open, EPERM},
    {"open a folder", try_open_dir, EPERM},
    {"create a file", try_create, EPERM},
    {"open a file by openat2", try_openat2, EPERM},
    {"unlink", try_unlink, EPERM},
    {"stat by path", try_stat, EPERM},
    {"run a program", try_exec, EPERM},
    {"fork", try_fork, EPERM},
    {"make a unix socket", try_unix_socket, EPERM},
    {"make a TCP socket", try_tcp_socket, EPERM},
    {"connect", try_connect, EPERM},
    {"bind", try_bind, EPERM},
    {"trace", try_ptrace, EPERM},
    {"kill", try_kill, EPERM},
    {"signal a thread of another", try_signal_thread, EPERM},
    {"new code", try_code, EPERM},
    {"data becomes code", try_code_later, EPERM},
    {"a namespace", try_namespace, EPERM},
    {"a ring of its own", try_ring, EPERM},
    {"change a ring", try_register, EPERM},
    {"signals from a socket", try_fcntl_owner, EPERM},
    {"read another process", try_read_other, EPERM},
    {"be dumped", try_dumpable, EPERM},
};

/* Runs fn in a child inside of the sandbox; its answer (0 ... 255). */
static int inside(int (*fn)(void), bool has_sandbox)
{
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        spare_socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (has_sandbox && data_sandbox(NULL) != 0) {
            _exit(250);
        }
        _exit(fn());
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_nothing_leads_out(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(tries); i++) {
        int got = inside(tries[i].fn, true);
        if (got != tries[i].want) {
            fail_msg("%s: %d, not %d", tries[i].name, got, tries[i].want);
        }
    }
    /* The tries themselves are real: outside, the first ones succeed. */
    assert_int_equal(inside(try_open, false), 0);
    assert_int_equal(inside(try_openat2, false), 0);
    assert_int_equal(inside(try_unix_socket, false), 0);
    assert_int_equal(inside(try_fork, false), 0);
    assert_int_equal(inside(try_code, false), 0);
    assert_int_equal(inside(try_kill, false), 0);
    assert_int_equal(inside(try_ring, false), 0);
}

/* ---- the rings that were made before ---- */

struct probe {
    struct blk_io io;
    int res;
    bool is_done;
};

static void on_probe(struct blk_io *io, int res)
{
    struct probe *p = CONTAINER_OF(io, struct probe, io);
    p->res = res;
    p->is_done = true;
}

static int ring_try(struct blk_queue *q, void (*prep)(struct io_uring_sqe *sqe))
{
    struct probe p = {.io = {on_probe}};
    struct io_uring_sqe *sqe = blk_queue_sqe(q);
    if (!sqe) {
        return -1000;
    }
    prep(sqe);
    io_uring_sqe_set_data(sqe, &p.io);
    while (!p.is_done) {
        blk_queue_run(q, UINT64_C(1000000000));
    }
    return p.res;
}

static int file_fd = -1;
static char byte[1];

static void prep_open(struct io_uring_sqe *sqe)
{
    io_uring_prep_openat(sqe, AT_FDCWD, "/etc/passwd", O_RDONLY, 0);
}

static void prep_socket(struct io_uring_sqe *sqe)
{
    memset(sqe, 0, sizeof(*sqe));
    sqe->opcode = 45; /* IORING_OP_SOCKET: liburing of Debian 12 does not know it */
    sqe->fd = AF_INET;
    sqe->off = SOCK_STREAM;
}

static void prep_connect(struct io_uring_sqe *sqe)
{
    static const struct sockaddr_un a = {.sun_family = AF_UNIX, .sun_path = "/run/x"};
    io_uring_prep_connect(sqe, spare_socket, (const struct sockaddr *)&a, sizeof(a));
}

static void prep_unlink(struct io_uring_sqe *sqe)
{
    io_uring_prep_unlinkat(sqe, AT_FDCWD, "/tmp/spx-data-sandbox", 0);
}

static void prep_read(struct io_uring_sqe *sqe)
{
    io_uring_prep_read(sqe, file_fd, byte, 1, 0);
}

static int use_ring(void)
{
    const struct blk_queue_opts o = {.depth = 8, .n_reqs = 8, .n_buffers = 8};
    struct blk_queue *q = NULL, *second = NULL;
    if (blk_queue_new(&o, &q, NULL) != 0) {
        return 1;
    }
    if (blk_queue_new(&o, &second, NULL) == 0) {
        return 2; /* there is one in the reserve */
    }
    if (ring_try(q, prep_open) >= 0) {
        return 3;
    }
    if (ring_try(q, prep_socket) >= 0) {
        return 4;
    }
    if (ring_try(q, prep_connect) != -EACCES) {
        return 5;
    }
    if (ring_try(q, prep_unlink) >= 0) {
        return 6;
    }
    if (ring_try(q, prep_read) != 1 || byte[0] != 'x') {
        return 7;
    }
    blk_queue_free(q);
    return 0;
}

static int use_ring_inside(void)
{
    if (blk_queue_reserve(1, 8, NULL) != 0) {
        return 20;
    }
    return data_sandbox(NULL) != 0 ? 21 : use_ring();
}

static void test_a_ring_reads_and_does_not_open(void **state)
{
    file_fd = memfd_create("x", MFD_CLOEXEC);
    assert_int_equal(pwrite(file_fd, "x", 1, 0), 1);
    assert_int_equal(inside(use_ring_inside, false), 0);
    close(file_fd);
}

/* ---- what must still work ---- */

static void *thread(void *ctx)
{
    void *p = malloc(1 << 20);
    memset(p, 1, 1 << 20);
    free(p);
    return ctx;
}

static int use_what_is_left(void)
{
    int fd = memfd_create("y", MFD_CLOEXEC);
    if (data_sandbox(NULL) != 0) {
        return 1;
    }
    pthread_t t;
    void *ret = NULL;
    if (pthread_create(&t, NULL, thread, &fd) != 0 || pthread_join(t, &ret) != 0 ||
        ret != &fd) {
        return 2;
    }
    struct stat st;
    if (fstat(fd, &st) != 0 || ftruncate(fd, 4096) != 0 || pwrite(fd, "x", 1, 0) != 1 ||
        fdatasync(fd) != 0) {
        return 3;
    }
    void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED || munmap(p, 4096) != 0 || fcntl(fd, F_DUPFD_CLOEXEC, 0) < 0) {
        return 4;
    }
    return 0;
}

static void test_work_goes_on(void **state)
{
    assert_int_equal(inside(use_what_is_left, false), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_leads_out),
        cmocka_unit_test(test_a_ring_reads_and_does_not_open),
        cmocka_unit_test(test_work_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
