#include "viperblock/data_sandbox.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
#define OUR_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OUR_ARCH AUDIT_ARCH_AARCH64
#else
#error "name the audit architecture of this processor"
#endif

#define FILTER_MAX 240u

struct program {
    struct sock_filter v[FILTER_MAX];
    unsigned short n;
};

static void add(struct program *p, uint16_t code, uint32_t k, uint8_t jt, uint8_t jf)
{
    if (p->n == FILTER_MAX) {
        abort();
    }
    p->v[p->n++] = (struct sock_filter){.code = code, .jt = jt, .jf = jf, .k = k};
}

static void load_arg(struct program *p, unsigned i)
{
    /* The lower half: all arguments that are looked at here are 32 bits wide for the kernel. */
    add(p, BPF_LD | BPF_W | BPF_ABS,
        (uint32_t)(offsetof(struct seccomp_data, args) + i * sizeof(uint64_t)), 0, 0);
}

static void load_nr(struct program *p)
{
    add(p, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr), 0, 0);
}

static void ret(struct program *p, uint32_t action)
{
    add(p, BPF_RET | BPF_K, action, 0, 0);
}

static void allow(struct program *p, unsigned nr)
{
    add(p, BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1);
    ret(p, SECCOMP_RET_ALLOW);
}

static void answer(struct program *p, unsigned nr, uint32_t action)
{
    add(p, BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1);
    ret(p, action);
}

/* 'nr' only when argument i is one of the values. */
static void allow_if_one_of(struct program *p, unsigned nr, unsigned i, const uint32_t *v,
                            unsigned n)
{
    add(p, BPF_JMP | BPF_JEQ | BPF_K, nr, 0, (uint8_t)(2 * n + 2));
    load_arg(p, i);
    for (unsigned k = 0; k < n; k++) {
        add(p, BPF_JMP | BPF_JEQ | BPF_K, v[k], 0, 1);
        ret(p, SECCOMP_RET_ALLOW);
    }
    ret(p, SECCOMP_RET_ERRNO | EPERM);
}

/* 'nr' only when all ('is_all') or none of the bits are set in argument i. */
static void allow_if_bits(struct program *p, unsigned nr, unsigned i, uint32_t bits,
                          bool is_all)
{
    add(p, BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 5);
    load_arg(p, i);
    add(p, BPF_ALU | BPF_AND | BPF_K, bits, 0, 0);
    add(p, BPF_JMP | BPF_JEQ | BPF_K, is_all ? bits : 0, 0, 1);
    ret(p, SECCOMP_RET_ALLOW);
    ret(p, SECCOMP_RET_ERRNO | EPERM);
}

/* Work on what is open already: descriptors, memory, threads of our own. */
static const unsigned allowed[] = {
    SYS_io_uring_enter,
    SYS_read,
    SYS_write,
    SYS_readv,
    SYS_writev,
    SYS_pread64,
    SYS_pwrite64,
    SYS_preadv,
    SYS_pwritev,
    SYS_preadv2,
    SYS_pwritev2,
    SYS_lseek,
    SYS_fsync,
    SYS_fdatasync,
    SYS_ftruncate,
    SYS_fallocate,
    SYS_flock,
    SYS_fstat,
    SYS_fstatfs,
    SYS_close,
    SYS_recvmsg,
    SYS_sendmsg,
    SYS_recvfrom,
    SYS_sendto,
    SYS_accept4,
    SYS_shutdown,
    SYS_getsockopt,
    SYS_epoll_create1,
    SYS_epoll_ctl,
#ifdef SYS_epoll_wait
    SYS_epoll_wait,
#endif
    SYS_epoll_pwait,
    SYS_epoll_pwait2,
    SYS_eventfd2,
    SYS_timerfd_create,
    SYS_timerfd_settime,
    SYS_ppoll,
#ifdef SYS_poll
    SYS_poll,
#endif
    SYS_memfd_create,
    SYS_dup3,
    SYS_munmap,
    SYS_mremap,
    SYS_madvise,
    SYS_msync,
    SYS_mlock,
    SYS_munlock,
    SYS_brk,
    SYS_futex,
    SYS_set_robust_list,
    SYS_rseq,
    SYS_membarrier,
    SYS_exit,
    SYS_exit_group,
    SYS_rt_sigreturn,
    SYS_rt_sigprocmask,
    SYS_rt_sigaction,
    SYS_sigaltstack,
    SYS_clock_gettime,
    SYS_clock_nanosleep,
    SYS_nanosleep,
    SYS_getrandom,
    SYS_restart_syscall,
    SYS_getpid,
    SYS_gettid,
    SYS_geteuid,
    SYS_sched_yield,
    SYS_sched_getaffinity,
    SYS_getrusage,
};

static int seccomp(struct err *err)
{
    static const uint32_t fcntls[] = {F_GETFD, F_SETFD,     F_GETFL,         F_SETFL,
                                      F_DUPFD, F_ADD_SEALS, F_DUPFD_CLOEXEC, F_GET_SEALS};
    static const uint32_t prctls[] = {PR_SET_NAME, PR_SET_VMA};
    static const uint32_t ioctls[] = {FICLONERANGE};
    const uint32_t self[] = {(uint32_t)getpid()};
    struct program p = {.n = 0};
    add(&p, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch), 0, 0);
    add(&p, BPF_JMP | BPF_JEQ | BPF_K, OUR_ARCH, 1, 0);
    ret(&p, SECCOMP_RET_KILL_PROCESS);
    load_nr(&p);
    add(&p, BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1); /* x32: other numbers */
    ret(&p, SECCOMP_RET_KILL_PROCESS);
    for (size_t i = 0; i < ARRAY_LEN(allowed); i++) {
        allow(&p, allowed[i]);
    }
    /* Its arguments are out of sight; libc takes clone() then, whose flags can be seen. */
    answer(&p, SYS_clone3, SECCOMP_RET_ERRNO | ENOSYS);
    allow_if_bits(&p, SYS_clone, 0, CLONE_VM | CLONE_THREAD | CLONE_SIGHAND, true);
    /* No code but what was there at the start. */
    allow_if_bits(&p, SYS_mmap, 2, PROT_EXEC, false);
    allow_if_bits(&p, SYS_mprotect, 2, PROT_EXEC, false);
    allow_if_one_of(&p, SYS_fcntl, 1, fcntls, ARRAY_LEN(fcntls));
    allow_if_one_of(&p, SYS_ioctl, 1, ioctls, ARRAY_LEN(ioctls));
    allow_if_one_of(&p, SYS_tgkill, 0, self, ARRAY_LEN(self)); /* abort() */
    allow_if_one_of(&p, SYS_prctl, 0, prctls, ARRAY_LEN(prctls));
    allow_if_bits(&p, SYS_newfstatat, 3, AT_EMPTY_PATH, true);
    /* An error, not death: a call that a newer libc thinks of must not take a guest's disk away. */
    ret(&p, SECCOMP_RET_ERRNO | EPERM);
    struct sock_fprog prog = {.len = p.n, .filter = p.v};
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) == 0
               ? 0
               : fail(err, -EIO, "SandboxFailed", "seccomp: %m");
}

/* As the kernel has it (include/uapi/linux/landlock.h); ours may be younger than the headers that
 * this is built with. A kernel takes a longer structure than it knows when the rest is 0. */
struct ruleset {
    uint64_t fs, net, scoped;
};

/* Nothing at all may be opened, made, run or connected to, by whatever way: what a ring does is
 * asked here too. */
static int landlock(struct err *err)
{
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, 1 /* asks for the version */);
    if (version < 0) {
        return errno == ENOSYS || errno == EOPNOTSUPP
                   ? 0
                   : fail(err, -EIO, "SandboxFailed", "landlock: %m");
    }
    unsigned n_fs = version >= 5 ? 16 : version >= 3 ? 15 : version >= 2 ? 14 : 13;
    struct ruleset r = {.fs = (UINT64_C(1) << n_fs) - 1,
                        .net = version >= 4 ? 3 : 0,
                        .scoped = version >= 6 ? 3 : 0};
    long fd = syscall(SYS_landlock_create_ruleset, &r, sizeof(r), 0);
    if (fd < 0) {
        return fail(err, -EIO, "SandboxFailed", "landlock: %m");
    }
    int rc = syscall(SYS_landlock_restrict_self, fd, 0) == 0
                 ? 0
                 : fail(err, -EIO, "SandboxFailed", "landlock: %m");
    close((int)fd);
    return rc;
}

static int no_capabilities(struct err *err)
{
    struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{.effective = 0}};
    (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    return syscall(SYS_capset, &h, none) == 0
               ? 0
               : fail(err, -EIO, "SandboxFailed", "capabilities: %m");
}

int data_sandbox(struct err *err)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
        return fail(err, -EIO, "SandboxFailed", "no_new_privs: %m");
    }
    int rc = landlock(err);
    rc = rc != 0 ? rc : no_capabilities(err);
    return rc != 0 ? rc : seccomp(err);
}
