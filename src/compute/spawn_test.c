/* Real QEMU (TCG), real monitor, no service: what a guest and its monitor do through life and
 * death. compute_spawn_test <spx-guestmon> <boot sector> <disk server> */
#include "base/file.h"
#include "base/test.h"
#include "base/time.h"
#include "compute/console_log.h"
#include "compute/spawn.h"
#include "compute/test_disk.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

static const char *monitor_path, *sector_path;
static char root[] = "/tmp/spx-spawn-XXXXXX";
static char run_dir[64], data_dir[64];
static struct test_disks disks;

static char ID[GUEST_ID_MAX]; /* another one in each test */
#define VOL "vol-0aaaaaaaaaaaaaaa1"

struct world {
    struct spawn_host host;
    struct spawn_plan plan;
    struct gm_state st;
    struct gm_result result;
    int conn;
    uint32_t seq;
};

static void file_of(const char *name, char path[128])
{
    (void)snprintf(path, 128, "%s/%s", root, name);
}

static const char *socket_of(const char *name)
{
    static char path[128];
    (void)snprintf(path, sizeof(path), "%s/%s.sock", root, name);
    return path;
}

static void make_disk(const char *name, const char *volume_id, bool is_bootable)
{
    char path[128];
    file_of(name, path);
    AUTO_FD fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 1 << 20), 0);
    if (is_bootable) {
        AUTO_FREE char *code = NULL;
        size_t n = 0;
        assert_int_equal(file_read(sector_path, 4096, &code, &n, NULL), 0);
        assert_int_equal(n, 512);
        assert_int_equal(pwrite(fd, code, n, 0), 512);
    }
    assert_true(test_disk_open(&disks, path, socket_of(name), volume_id));
}

/* Reads one message; false at the time limit or when the monitor has closed. */
static bool receive(struct world *w, uint64_t until_ns)
{
    union gm_msg m;
    while (time_mono_ns() < until_ns) {
        struct pollfd p = {.fd = w->conn, .events = POLLIN};
        if (poll(&p, 1, 50) <= 0) {
            continue;
        }
        ssize_t n = recv(w->conn, &m, sizeof(m), 0);
        if (n <= 0) {
            return false;
        }
        assert_int_equal(gm_answer_check(&m, (size_t)n), 0);
        if (m.head.type == GM_STATE) {
            w->st = m.state;
        } else {
            w->result = m.result;
        }
        return true;
    }
    return false;
}

#define WAIT_FOR(w, cond)                                                                \
    do {                                                                                 \
        uint64_t until_ = time_mono_ns() + UINT64_C(30) * NS_PER_S;                      \
        bool is_ok_ = (cond);                                                            \
        while (!is_ok_ && receive((w), until_)) {                                        \
            is_ok_ = (cond);                                                             \
        }                                                                                \
        if (!is_ok_) {                                                                   \
            fail_msg("line %d: never came true: %s (phase %u exit %u \"%s\")", __LINE__, \
                     #cond, (w)->st.phase, (w)->st.exit, (w)->st.text);                  \
        }                                                                                \
    } while (0)

static void command(struct world *w, struct gm_cmd *c)
{
    assert_int_equal(send(w->conn, c, sizeof(*c), 0), sizeof(*c));
    WAIT_FOR(w, w->result.head.seq == c->head.seq);
}

static int simple(struct world *w, enum gm_op op, unsigned slot)
{
    struct gm_cmd c;
    gm_cmd_init(&c, op, ++w->seq);
    c.slot = slot;
    command(w, &c);
    return w->result.code;
}

static int add_disk(struct world *w, unsigned slot, const char *path, bool is_nbd)
{
    struct gm_cmd c;
    gm_cmd_init(&c, GM_OP_DISK_ADD, ++w->seq);
    c.slot = slot;
    (void)snprintf(c.name, sizeof(c.name), "vol-0bbbbbbbbbbbbbb%02u", slot);
    c.n_queues = 1;
    c.is_nbd = is_nbd;
    c.data_n = (uint32_t)strlen(path);
    memcpy(c.data, path, c.data_n);
    command(w, &c);
    return w->result.code;
}

static void input(struct world *w, char byte)
{
    struct gm_cmd c;
    gm_cmd_init(&c, GM_OP_INPUT, ++w->seq);
    c.data[0] = byte;
    c.data_n = 1;
    command(w, &c);
    assert_int_equal(w->result.code, 0);
}

static size_t count_in_console(const char *what)
{
    char dir[GUEST_DATA_PATH_MAX];
    const struct guest_dirs d = {.run_dir = run_dir, .data_dir = data_dir};
    assert_int_equal(guest_data_path(&d, ID, dir, NULL), 0);
    AUTO_BUF b;
    buf_init(&b, 1 << 20);
    uint64_t at = 0;
    assert_int_equal(console_log_tail(dir, CONSOLE_TAIL_MAX, &b, &at, NULL), 0);
    size_t n = 0;
    struct str rest = buf_str(&b);
    for (ptrdiff_t i; (i = str_find_str(rest, str_c(what))) >= 0; n++) {
        rest = str_skip(rest, (size_t)i + 1);
    }
    return n;
}

static void wait_console(struct world *w, const char *what, size_t n)
{
    uint64_t until = time_mono_ns() + UINT64_C(30) * NS_PER_S;
    while (count_in_console(what) < n) {
        if (time_mono_ns() > until) {
            fail_msg("\"%s\" was not seen %zu times on the console", what, n);
        }
        (void)receive(w, time_mono_ns() + 50 * NS_PER_MS);
    }
}

static void prepare(struct world *w)
{
    *w = (struct world){.conn = -1};
    w->host = (struct spawn_host){
        .dirs = {.run_dir = run_dir, .data_dir = data_dir},
        .monitor_path = monitor_path,
        .boot_id = "boot-1",
    };
    struct spawn_plan *p = &w->plan;
    (void)snprintf(p->note.id, sizeof(p->note.id), "%s", ID);
    (void)snprintf(p->note.account, sizeof(p->note.account), "111122223333");
    p->qemu = (struct qemu_launch){.id = ID,
                                   .arch = "x86_64",
                                   .type = "t3.nano",
                                   .n_vcpus = 1,
                                   .memory_mib = 64,
                                   .vars_fd = -1};
    make_disk("root", VOL, true);
    static char path[128];
    (void)snprintf(path, sizeof(path), "%s", socket_of("root"));
    p->qemu.disk[0] = (struct qemu_disk){.path = path, .volume_id = VOL, .is_root = true};
}

static void start(struct world *w)
{
    struct err err = ERR_INIT;
    if (spawn_guest(&w->host, &w->plan, &w->conn, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    WAIT_FOR(w, w->st.phase == GM_PHASE_RUNNING);
}

static void launch(struct world *w)
{
    prepare(w);
    start(w);
    wait_console(w, "BOOT OK", 1);
}

static bool is_reaped(pid_t pid)
{
    uint64_t until = time_mono_ns() + UINT64_C(10) * NS_PER_S;
    while (time_mono_ns() < until) {
        if (waitpid(pid, NULL, WNOHANG) == pid) {
            return true;
        }
        (void)poll(NULL, 0, 20);
    }
    return false;
}

/* QEMU has ended: dismisses the monitor and cleans. */
static void finish(struct world *w)
{
    WAIT_FOR(w, w->st.phase == GM_PHASE_EXITED);
    assert_int_equal(simple(w, GM_OP_BYE, 0), 0);
    assert_true(is_reaped(w->plan.note.monitor.pid));
    close(w->conn);
    test_disks_done(&disks);
    guest_run_remove(&w->host.dirs, ID);
    guest_data_remove(&w->host.dirs, ID);
    char path[GUEST_PATH_MAX];
    assert_int_equal(guest_run_path(&w->host.dirs, ID, path, NULL), 0);
    assert_int_equal(access(path, F_OK), -1); /* nothing was left that we do not know */
}

static void test_boot_and_power_button(void **state)
{
    struct world w;
    launch(&w);
    WAIT_FOR(&w, w.st.slot[0] == GM_SLOT_USED);
    assert_string_equal(w.st.name[0], VOL);
    assert_int_equal(simple(&w, GM_OP_BYE, 0), -EBUSY);
    assert_int_equal(simple(&w, GM_OP_POWERDOWN, 0), 0);
    WAIT_FOR(&w, w.st.phase == GM_PHASE_EXITED);
    assert_int_equal(w.st.exit, GM_EXIT_GUEST);
    assert_int_equal(count_in_console("BUTTON"), 1);
    finish(&w);
}

static void test_guest_switches_itself_off(void **state)
{
    struct world w;
    launch(&w);
    input(&w, 'q');
    WAIT_FOR(&w, w.st.phase == GM_PHASE_EXITED);
    assert_int_equal(w.st.exit, GM_EXIT_GUEST);
    finish(&w);
}

static void test_force_and_crash(void **state)
{
    struct world w;
    launch(&w);
    input(&w, 'h');
    assert_int_equal(simple(&w, GM_OP_QUIT, 0), 0);
    WAIT_FOR(&w, w.st.phase == GM_PHASE_EXITED);
    assert_int_equal(w.st.exit, GM_EXIT_QUIT);
    finish(&w);

    launch(&w);
    assert_int_equal(kill(w.st.qemu_pid, SIGKILL), 0);
    WAIT_FOR(&w, w.st.phase == GM_PHASE_EXITED);
    assert_int_equal(w.st.exit, GM_EXIT_SIGNAL);
    assert_int_equal(w.st.exit_value, SIGKILL);
    finish(&w);
}

static void test_reset_and_reboot(void **state)
{
    struct world w;
    launch(&w);
    assert_int_equal(simple(&w, GM_OP_RESET, 0), 0);
    wait_console(&w, "BOOT OK", 2);
    WAIT_FOR(&w, w.st.n_reboots_done == 1 && w.st.n_resets >= 1);
    /* The guest goes down by the button, and comes up again instead of ending. */
    assert_int_equal(simple(&w, GM_OP_REBOOT, 0), 0);
    wait_console(&w, "BUTTON", 1);
    wait_console(&w, "BOOT OK", 3);
    WAIT_FOR(&w, w.st.n_reboots_done == 2);
    assert_int_equal(w.st.phase, GM_PHASE_RUNNING);
    /* The guest resets itself: not one of ours. (The firmware adds resets of its own.) */
    uint64_t n_resets = w.st.n_resets;
    input(&w, 'r');
    wait_console(&w, "BOOT OK", 4);
    WAIT_FOR(&w, w.st.n_resets > n_resets);
    assert_int_equal(w.st.n_reboots_done, 2);
    input(&w, 'q');
    finish(&w);
}

static void test_monitor_killed_and_replaced(void **state)
{
    struct world w;
    launch(&w);
    int32_t qemu = w.st.qemu_pid;
    uint64_t start = w.st.qemu_start;
    assert_int_equal(kill(w.plan.note.monitor.pid, SIGKILL), 0);
    assert_true(is_reaped(w.plan.note.monitor.pid));
    close(w.conn);
    enum spawn_found found = SPAWN_NOTHING;
    struct err err = ERR_INIT;
    assert_int_equal(spawn_adopt(&w.host, ID, &found, &w.plan.note, &w.conn, &err), 0);
    assert_int_equal(found, SPAWN_CONNECTED);
    w.st = (struct gm_state){.phase = 0};
    WAIT_FOR(&w, w.st.phase == GM_PHASE_RUNNING && w.st.slot[0] == GM_SLOT_USED);
    assert_int_equal(w.st.qemu_pid, qemu);
    assert_int_equal(w.st.qemu_start, start);
    assert_int_equal(w.st.is_adopted, 1);
    assert_string_equal(w.st.name[0], VOL);
    /* The service restarts: the same monitor answers on a new connection. */
    int old = w.conn;
    assert_int_equal(spawn_adopt(&w.host, ID, &found, &w.plan.note, &w.conn, &err), 0);
    assert_int_equal(found, SPAWN_CONNECTED);
    close(old);
    input(&w, 'q');
    WAIT_FOR(&w, w.st.phase == GM_PHASE_EXITED);
    assert_int_equal(w.st.exit, GM_EXIT_GUEST);
    finish(&w);
}

static void test_monitor_and_qemu_killed(void **state)
{
    struct world w;
    launch(&w);
    assert_int_equal(kill(w.plan.note.monitor.pid, SIGKILL), 0);
    assert_int_equal(kill(w.st.qemu_pid, SIGKILL), 0);
    assert_true(is_reaped(w.plan.note.monitor.pid));
    close(w.conn);
    enum spawn_found found = SPAWN_NOTHING;
    struct guest_note note;
    const struct proc_id qemu = {.pid = w.st.qemu_pid, .start = w.st.qemu_start};
    while (proc_is_alive(&qemu)) {
        (void)poll(NULL, 0, 10);
    }
    assert_int_equal(spawn_adopt(&w.host, ID, &found, &note, &w.conn, NULL), 0);
    assert_int_equal(found, SPAWN_GONE);
    w.host.boot_id = "boot-2";
    assert_int_equal(spawn_adopt(&w.host, ID, &found, &note, &w.conn, NULL), 0);
    assert_int_equal(found, SPAWN_NOTHING);
    test_disks_done(&disks);
    guest_run_remove(&w.host.dirs, ID);
    guest_data_remove(&w.host.dirs, ID);
}

#define EXTRA "vol-0bbbbbbbbbbbbbb03"
#define THIRD "vol-0bbbbbbbbbbbbbb05"

static void disks_come_and_go(bool is_nbd)
{
    struct world w;
    char path[192];
    launch(&w);
    make_disk("extra", EXTRA, false);
    (void)snprintf(path, sizeof(path), "%s%s", socket_of("extra"), is_nbd ? "" : ".vu");
    assert_int_equal(add_disk(&w, 3, path, is_nbd), 0);
    WAIT_FOR(&w, w.st.slot[3] == GM_SLOT_USED);
    assert_string_equal(w.st.name[3], EXTRA);
    assert_int_equal(add_disk(&w, 3, path, is_nbd), -EEXIST);
    assert_int_equal(simple(&w, GM_OP_DISK_DEL, 4), -ENOENT);
    assert_int_equal(simple(&w, GM_OP_DISK_DEL, 3), 0);
    WAIT_FOR(&w, w.st.slot[3] != GM_SLOT_USED);
    /* This guest has no driver that lets go. */
    assert_int_equal(w.st.slot[3], GM_SLOT_LEAVING);
    assert_int_equal(simple(&w, GM_OP_DISK_CUT, 3), 0);
    WAIT_FOR(&w, w.st.slot[3] == GM_SLOT_CUT);
    /* A restart of the machine lets the device go, and the connection with it. */
    assert_int_equal(simple(&w, GM_OP_RESET, 0), 0);
    WAIT_FOR(&w, w.st.slot[3] == GM_SLOT_EMPTY);
    wait_console(&w, "BOOT OK", 2);
    assert_int_equal(add_disk(&w, 3, path, is_nbd), 0);
    WAIT_FOR(&w, w.st.slot[3] == GM_SLOT_USED);
    /* Another one that is refused: nothing stays behind, the slot can be used. */
    assert_int_equal(add_disk(&w, 5, "/a,b", is_nbd), -EINVAL);
    assert_int_equal(add_disk(&w, 5, "relative", is_nbd), -EINVAL);
    make_disk("third", THIRD, false);
    (void)snprintf(path, sizeof(path), "%s%s", socket_of("third"), is_nbd ? "" : ".vu");
    assert_int_equal(add_disk(&w, 5, path, is_nbd), 0);
    WAIT_FOR(&w, w.st.slot[5] == GM_SLOT_USED);
    input(&w, 'q');
    finish(&w);
}

static void test_disks_come_and_go_over_nbd(void **state)
{
    disks_come_and_go(true);
}

static void test_disks_come_and_go_over_vhost_user(void **state)
{
    disks_come_and_go(false);
}

/* QEMU learns a new size over a new connection; a disk of the other kind needs nothing of it. */
static void test_disk_grows(void **state)
{
    struct world w;
    char path[128];
    launch(&w);
    make_disk("extra", EXTRA, false);
    assert_int_equal(add_disk(&w, 3, socket_of("extra"), true), 0);
    file_of("extra", path);
    test_disk_close(&disks, socket_of("extra"), false);
    assert_int_equal(truncate(path, 3 << 20), 0);
    assert_true(test_disk_open(&disks, path, socket_of("extra"), EXTRA));
    struct gm_cmd c;
    for (int i = 0; i < 3; i++) { /* the names of the connections take turns */
        gm_cmd_init(&c, GM_OP_DISK_GROW, ++w.seq);
        c.slot = 3;
        c.size = 3 << 20;
        c.data_n = (uint32_t)strlen(socket_of("extra"));
        memcpy(c.data, socket_of("extra"), c.data_n);
        command(&w, &c);
        assert_int_equal(w.result.code, 0);
    }
    gm_cmd_init(&c, GM_OP_DISK_GROW, ++w.seq);
    c.slot = 4;
    c.size = 3 << 20;
    c.data_n = 2;
    memcpy(c.data, "/x", 2);
    command(&w, &c);
    assert_int_equal(w.result.code, -ENOENT);
    input(&w, 'q');
    finish(&w);
}

static void read_root(char ret[9])
{
    char path[128];
    file_of("root", path);
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(pread(fd, ret, 8, 512), 8);
    ret[8] = '\0';
}

static void test_guest_writes_its_disk(void **state)
{
    struct world w;
    char bytes[9];
    launch(&w);
    input(&w, 'w');
    wait_console(&w, "WROTE", 1);
    input(&w, 'd');
    wait_console(&w, "WRITTEN!", 1);
    read_root(bytes);
    assert_string_equal(bytes, "WRITTEN!");
    input(&w, 'q');
    finish(&w);
}

/* What serves the disk is killed: the guest's write waits, and is done by the next one. */
static void test_write_while_the_block_service_is_away(void **state)
{
    struct world w;
    char bytes[9], path[128];
    launch(&w);
    test_disk_close(&disks, socket_of("root"), true);
    input(&w, 'w');
    (void)poll(NULL, 0, 300);
    assert_int_equal(count_in_console("WROTE"), 0);
    file_of("root", path);
    assert_true(test_disk_open(&disks, path, socket_of("root"), VOL));
    wait_console(&w, "WROTE", 1);
    read_root(bytes);
    assert_string_equal(bytes, "WRITTEN!");
    input(&w, 'q');
    finish(&w);
}

static void test_failed_launch_leaves_nothing(void **state)
{
    struct world w = {.conn = -1};
    w.host = (struct spawn_host){.dirs = {.run_dir = run_dir, .data_dir = data_dir},
                                 .monitor_path = "/nonexistent/spx-guestmon",
                                 .boot_id = "b"};
    (void)snprintf(w.plan.note.id, sizeof(w.plan.note.id), "%s", ID);
    w.plan.qemu = (struct qemu_launch){
        .id = ID, .arch = "x86_64", .type = "t3.nano", .n_vcpus = 1, .memory_mib = 64};
    struct err err = ERR_INIT;
    assert_true(spawn_guest(&w.host, &w.plan, &w.conn, &err) < 0);
    assert_string_equal(err.name, "SpawnFailed");
    char path[GUEST_PATH_MAX];
    assert_int_equal(guest_run_path(&w.host.dirs, ID, path, NULL), 0);
    assert_int_equal(access(path, F_OK), -1);
    /* QEMU itself refuses: the monitor tells what it said. */
    w.host.monitor_path = monitor_path;
    w.plan.qemu.type = "t3.nano";
    w.plan.qemu.n_vcpus = 200;
    w.plan.qemu.is_uefi = true;
    w.plan.qemu.firmware = "/nonexistent/X_CODE.fd";
    assert_true(spawn_guest(&w.host, &w.plan, &w.conn, &err) < 0);
    w.plan.qemu.is_uefi = false;
    w.plan.qemu.memory_mib = 1u << 30; /* a PiB */
    err_clear(&err);
    assert_int_equal(spawn_guest(&w.host, &w.plan, &w.conn, &err), 0);
    WAIT_FOR(&w, w.st.phase == GM_PHASE_EXITED);
    assert_int_equal(w.st.exit, GM_EXIT_CODE);
    assert_true(w.st.text[0] != '\0');
    finish(&w);
    /* And when there is no QEMU at all. */
    w.conn = -1;
    w.st = (struct gm_state){.phase = 0};
    w.plan.qemu.memory_mib = 64;
    w.host.qemu_path = "/nonexistent/qemu";
    assert_int_equal(spawn_guest(&w.host, &w.plan, &w.conn, &err), 0);
    WAIT_FOR(&w, w.st.phase == GM_PHASE_EXITED);
    assert_non_null(strstr(w.st.text, "/nonexistent/qemu"));
    finish(&w);
}

/* The firmware comes up with variables of the instance's own, which survive the stop. */
static void test_uefi(void **state)
{
    static const char *const files[] = {"/usr/share/OVMF/OVMF_CODE_4M.fd",
                                        "/usr/share/OVMF/OVMF_CODE.fd"};
    struct world w;
    prepare(&w);
    w.plan.qemu.is_uefi = true;
    w.plan.qemu.memory_mib = 256;
    w.plan.qemu.firmware = access(files[0], R_OK) == 0 ? files[0] : files[1];
    start(&w);
    wait_console(&w, "BdsDxe", 1);
    assert_int_equal(simple(&w, GM_OP_QUIT, 0), 0);
    WAIT_FOR(&w, w.st.phase == GM_PHASE_EXITED);
    assert_int_equal(w.st.exit, GM_EXIT_QUIT);
    char dir[GUEST_DATA_PATH_MAX], path[GUEST_DATA_PATH_MAX + 16];
    struct stat st, again;
    assert_int_equal(guest_data_path(&w.host.dirs, ID, dir, NULL), 0);
    (void)snprintf(path, sizeof(path), "%s/vars.fd", dir);
    assert_int_equal(stat(path, &st), 0);
    assert_true(st.st_size > 100000 && (st.st_mode & 077) == 0);
    assert_int_equal(simple(&w, GM_OP_BYE, 0), 0);
    assert_true(is_reaped(w.plan.note.monitor.pid));
    close(w.conn);
    w.conn = -1;
    w.st = (struct gm_state){.phase = 0};
    start(&w);
    assert_int_equal(stat(path, &again), 0);
    assert_int_equal(st.st_ino, again.st_ino);
    assert_int_equal(simple(&w, GM_OP_QUIT, 0), 0);
    finish(&w);
}

static void test_host_goes_down(void **state)
{
    struct world w;
    launch(&w);
    int32_t qemu = w.st.qemu_pid;
    const struct proc_id id = {.pid = qemu, .start = w.st.qemu_start};
    assert_int_equal(kill(w.plan.note.monitor.pid, SIGTERM), 0);
    assert_true(is_reaped(w.plan.note.monitor.pid)); /* it goes by itself: nobody says BYE */
    assert_false(proc_is_alive(&id));
    assert_int_equal(count_in_console("BUTTON"), 1);
    close(w.conn);
    test_disks_done(&disks);
}

static int set_up(void **state)
{
    static unsigned n;
    (void)snprintf(ID, sizeof(ID), "i-%09x%08x", (unsigned)getpid(), ++n);
    return 0;
}

/* A test that failed leaves processes: they are found by their note and their names, and ended. */
static int tear_down(void **state)
{
    const struct spawn_host h = {.dirs = {.run_dir = run_dir, .data_dir = data_dir},
                                 .boot_id = "boot-1"};
    struct guest_note note;
    if (guest_note_read(&h.dirs, ID, &note, NULL) == 0) {
        (void)proc_kill(&note.monitor);
        spawn_kill(&h, &note);
        guest_run_remove(&h.dirs, ID);
    }
    guest_data_remove(&h.dirs, ID);
    spawn_forget(ID);
    return 0;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(int argc, char **argv)
{
    if (argc != 4 || !mkdtemp(root)) {
        return 2;
    }
    monitor_path = argv[1];
    sector_path = argv[2];
    disks.server = argv[3];
    (void)chmod(root, 0755);
    (void)snprintf(run_dir, sizeof(run_dir), "%s/run", root);
    (void)snprintf(data_dir, sizeof(data_dir), "%s/data", root);
    const struct CMUnitTest tests[] = {
        TEST(test_boot_and_power_button),
        TEST(test_guest_switches_itself_off),
        TEST(test_force_and_crash),
        TEST(test_reset_and_reboot),
        TEST(test_monitor_killed_and_replaced),
        TEST(test_monitor_and_qemu_killed),
        TEST(test_disks_come_and_go_over_nbd),
        TEST(test_disks_come_and_go_over_vhost_user),
        TEST(test_disk_grows),
        TEST(test_guest_writes_its_disk),
        TEST(test_write_while_the_block_service_is_away),
        TEST(test_failed_launch_leaves_nothing),
        TEST(test_uefi),
        TEST(test_host_goes_down),
    };
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    static const char *const left[] = {"root", "extra",        "third", "run/guest",
                                       "run",  "data/compute", "data"};
    for (size_t i = 0; i < ARRAY_LEN(left); i++) {
        char path[128];
        (void)snprintf(path, sizeof(path), "%s/%s", root, left[i]);
        (void)remove(path);
    }
    (void)rmdir(root);
    return n_failed;
}
