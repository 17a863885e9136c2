#include "viperblock/sandbox.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
#define OUR_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OUR_ARCH AUDIT_ARCH_AARCH64
#else
#error "name the audit architecture of this processor"
#endif

#if defined(__SANITIZE_ADDRESS__)
#define HAS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_ASAN 1
#endif
#endif
#ifndef HAS_ASAN
#define HAS_ASAN 0
#endif

#define CPU_MAX_S   21600u /* terabytes are hashed and converted in hours */
#define MEMORY_MAX  (UINT64_C(1) << 30)
#define N_FILES_MAX 64u
#define FILTER_MAX  160u

static int limit(int what, uint64_t max, struct err *err)
{
    struct rlimit r = {.rlim_cur = max, .rlim_max = max};
    /* The enum of glibc's prototype is not an int. */
    return setrlimit((__rlimit_resource_t)what, &r) == 0
               ? 0
               : fail(err, -EIO, "SandboxFailed", "a limit cannot be set: %m");
}

int sandbox_limits(uint64_t max_file_size, struct err *err)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
        return fail(err, -EIO, "SandboxFailed", "no_new_privs: %m");
    }
    int rc = limit(RLIMIT_CORE, 0, err);
    rc = rc != 0 ? rc : limit(RLIMIT_FSIZE, max_file_size, err);
    rc = rc != 0 ? rc : limit(RLIMIT_CPU, CPU_MAX_S, err);
    return rc != 0 ? rc : limit(RLIMIT_NOFILE, N_FILES_MAX, err);
}

struct program {
    struct sock_filter v[FILTER_MAX];
    unsigned short n;
};

static void add(struct program *p, struct sock_filter f)
{
    if (p->n == FILTER_MAX) {
        abort();
    }
    p->v[p->n++] = f;
}

/* Calls of another architecture (and x32 on x86-64) kill: their numbers mean other things. */
static void begin(struct program *p)
{
    add(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                        offsetof(struct seccomp_data, arch)));
    add(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OUR_ARCH, 1, 0));
    add(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
    add(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                        offsetof(struct seccomp_data, nr)));
    add(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1));
    add(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
}

static void on_call(struct program *p, unsigned nr, uint32_t action)
{
    add(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1));
    add(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action));
}

static int load(struct program *p, uint32_t otherwise, struct err *err)
{
    add(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, otherwise));
    struct sock_fprog prog = {.len = p->n, .filter = p->v};
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) != 0) {
        return fail(err, -EIO, "SandboxFailed", "seccomp: %m");
    }
    return 0;
}

int sandbox_strict(struct err *err)
{
    static const unsigned allowed[] = {
        SYS_read,
        SYS_write,
        SYS_pread64,
        SYS_pwrite64,
        SYS_lseek,
        SYS_ftruncate,
        SYS_fstatfs,
        SYS_fstat,
        SYS_newfstatat,
        SYS_close,
        SYS_mmap,
        SYS_munmap,
        SYS_mremap,
        SYS_mprotect,
        SYS_madvise,
        SYS_brk,
        SYS_futex,
        SYS_exit,
        SYS_exit_group,
        SYS_rt_sigreturn,
        SYS_rt_sigprocmask,
        SYS_rt_sigaction,
        SYS_sigaltstack,
        SYS_clock_gettime,
        SYS_getrandom,
        SYS_restart_syscall,
        SYS_getpid,
        SYS_gettid,
        SYS_tgkill,
        SYS_sched_yield,
#if HAS_ASAN /* its allocator names mappings, its reports read maps */
        SYS_prctl,
        SYS_openat,
        SYS_readlinkat,
#endif
    };
    struct program p = {.n = 0};
    if (!HAS_ASAN) {
        int rc = limit(RLIMIT_AS, MEMORY_MAX, err);
        if (rc != 0) {
            return rc;
        }
    }
    begin(&p);
    for (size_t i = 0; i < ARRAY_LEN(allowed); i++) {
        on_call(&p, allowed[i], SECCOMP_RET_ALLOW);
    }
    return load(&p, SECCOMP_RET_KILL_PROCESS, err);
}

static int allow_below(int ruleset, const char *path, uint64_t access, struct err *err)
{
    int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT ? 0 : fail(err, -EIO, "SandboxFailed", "%s: %m", path);
    }
    struct landlock_path_beneath_attr a = {.allowed_access = access, .parent_fd = fd};
    long rc = syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &a, 0);
    int e = errno;
    close(fd);
    errno = e;
    return rc == 0 ? 0 : fail(err, -EIO, "SandboxFailed", "landlock: %s: %m", path);
}

/* The first version of Landlock is enough: what it governs is named here, what later versions
 * add is not asked for. */
static int landlock(const char *folder, bool *ret_has, struct err *err)
{
    const uint64_t rd = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
    const uint64_t wr = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG;
    struct landlock_ruleset_attr attr = {
        .handled_access_fs = rd | wr | LANDLOCK_ACCESS_FS_EXECUTE |
                             LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE |
                             LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_DIR |
                             LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |
                             LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM};
    *ret_has = false;
    /* The size that the first version knew: older kernels refuse a longer structure with
     * members set. */
    long fd = syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr.handled_access_fs), 0);
    if (fd < 0) {
        return errno == ENOSYS || errno == EOPNOTSUPP
                   ? 0
                   : fail(err, -EIO, "SandboxFailed", "landlock: %m");
    }
    static const char *const readable[] = {"/usr",
                                           "/bin",
                                           "/lib",
                                           "/lib64",
                                           "/etc/ld.so.cache",
                                           "/etc/ld.so.preload",
                                           "/etc/ssl/openssl.cnf"};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(readable); i++) {
        bool is_file = i >= 4;
        rc = allow_below(
            (int)fd, readable[i],
            is_file ? LANDLOCK_ACCESS_FS_READ_FILE : rd | LANDLOCK_ACCESS_FS_EXECUTE, err);
    }
    rc = rc != 0 ? rc : allow_below((int)fd, folder, rd | wr, err);
    if (rc == 0 && syscall(SYS_landlock_restrict_self, fd, 0) != 0) {
        rc = fail(err, -EIO, "SandboxFailed", "landlock: %m");
    }
    close((int)fd);
    *ret_has = rc == 0;
    return rc;
}

int sandbox_tool(const char *folder, bool *ret_has_landlock, struct err *err)
{
    static const unsigned denied[] = {
        SYS_socket,
        SYS_socketpair,
        SYS_connect,
        SYS_bind,
        SYS_listen,
        SYS_accept,
        SYS_accept4,
        SYS_sendto,
        SYS_sendmsg,
        SYS_recvfrom,
        SYS_recvmsg,
        SYS_ptrace,
        SYS_process_vm_readv,
        SYS_process_vm_writev,
        SYS_mount,
        SYS_umount2,
        SYS_pivot_root,
        SYS_chroot,
        SYS_setns,
        SYS_unshare,
        SYS_bpf,
        SYS_perf_event_open,
        SYS_keyctl,
        SYS_add_key,
        SYS_request_key,
        SYS_kexec_load,
        SYS_init_module,
        SYS_finit_module,
        SYS_delete_module,
        SYS_open_by_handle_at,
        SYS_userfaultfd,
        SYS_io_uring_setup,
        SYS_io_uring_enter,
        SYS_io_uring_register,
        SYS_kill,
        SYS_tkill,
        SYS_pidfd_open,
        SYS_pidfd_getfd,
        SYS_pidfd_send_signal,
        SYS_fsopen,
        SYS_open_tree,
        SYS_move_mount,
    };
    int rc = landlock(folder, ret_has_landlock, err);
    if (rc != 0) {
        return rc;
    }
    struct program p = {.n = 0};
    begin(&p);
    for (size_t i = 0; i < ARRAY_LEN(denied); i++) {
        on_call(&p, denied[i], SECCOMP_RET_ERRNO | EPERM);
    }
    return load(&p, SECCOMP_RET_ALLOW, err);
}
