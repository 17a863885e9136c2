/* spx-compute with real QEMU (TCG), a real spx-state, and small servers that stand for the
 * block and the network service.
 *   compute_compute_test <spx-state> <spx-compute> <boot sector>
 * It needs root (taps, users). */
#include "base/file.h"
#include "compute/compute_world.h"
#include "os/proc_id.h"
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>

/* ---- tests ---- */

static void test_whole_life(void **state)
{
    static struct world w;
    struct vm vm;
    AUTO(arena_freep) struct arena *a = arena_new(1 << 20);
    world_init(&w, 71000);
    struct node_facts f;
    WAIT_UNTIL("facts", get(&w, a, STR("node/n1/facts"), &node_facts_desc, &f));
    assert_str(f.accel, "tcg");
    assert_true(f.accel_reason.n > 0 && f.types.n > 10 && f.usable_vcpus > 0);
    launch(&w, &vm, "stop", 2, true);
    wait_state(&w, vm.id, "running");
    WAIT_UNTIL("boot", console_count(&w, vm.id, "BOOT OK") == 1);
    uint64_t pid = guest_num(&w, vm.id, "pid"), monitor = guest_num(&w, vm.id, "monitor_pid");
    struct instance_status st = status(&w, a, vm.id);
    assert_int_equal(st.pid, pid);
    assert_int_equal(st.generation, 1);
    assert_int_equal(st.n_starts, 1);
    assert_str(st.accel, "tcg");
    assert_str(st.system_check, "ok");
    assert_str(st.instance_check,
               "initializing"); /* this guest has no driver for its interface */
    /* Users of their own, neither root nor the service's. */
    assert_int_equal(owner_of(pid), 71100);
    assert_int_equal(owner_of(monitor), 71100);
    uint64_t slot = 99;
    assert_true(is_attachment(&w, vm.root, "attached", &slot));
    assert_int_equal(slot, 0);
    change(&w, vm.id, "stopped", false, false);
    wait_state(&w, vm.id, "stopped");
    assert_int_equal(console_count(&w, vm.id, "BUTTON"),
                     1); /* by the power button; and the log survives the stop */
    WAIT_UNTIL("folder", !has_run_folder(&w, vm.id));
    assert_true(is_attachment(&w, vm.root, "attached", &slot));
    change(&w, vm.id, "running", false, false);
    wait_state(&w, vm.id, "running");
    WAIT_UNTIL("boot", console_count(&w, vm.id, "BOOT OK") == 2);
    change(&w, vm.id, "terminated", false, false);
    wait_state(&w, vm.id, "terminated");
    WAIT_UNTIL("folder", !has_run_folder(&w, vm.id));
    assert_int_equal(console_count(&w, vm.id, "BOOT OK"),
                     2); /* shown for the hour that AWS shows it */
}

static void test_deaf_guest_is_ended_by_force(void **state)
{
    static struct world w;
    struct vm vm;
    world_init(&w, 0);
    run(&w, &vm, "stop");
    type(&w, vm.id, 'i');
    WAIT_UNTIL("deaf", console_count(&w, vm.id, "IGNORING") == 1);
    uint64_t from = time_mono_ns();
    change(&w, vm.id, "stopped", false, false);
    wait_state(&w, vm.id, "stopped");
    assert_true(time_mono_ns() - from > 2 * NS_PER_S); /* it had its time */
    assert_int_equal(console_count(&w, vm.id, "BUTTON"), 1);
    change(&w, vm.id, "running", false, false);
    wait_state(&w, vm.id, "running");
    WAIT_UNTIL("boot", console_count(&w, vm.id, "BOOT OK") == 2);
    from = time_mono_ns();
    change(&w, vm.id, "stopped", true, false);
    wait_state(&w, vm.id, "stopped");
    assert_true(time_mono_ns() - from < 3 * NS_PER_S);
    assert_int_equal(console_count(&w, vm.id, "BUTTON"), 1); /* no button this time */
}

static void test_guest_switches_itself_off(void **state)
{
    static struct world w;
    struct vm a_vm, b_vm;
    AUTO(arena_freep) struct arena *a = arena_new(1 << 20);
    world_init(&w, 0);
    run(&w, &a_vm, "stop");
    run(&w, &b_vm, "terminate");
    type(&w, a_vm.id, 'q');
    type(&w, b_vm.id, 'q');
    wait_state(&w, a_vm.id, "stopped");
    wait_state(&w, b_vm.id, "terminated");
    assert_str(status(&w, a, a_vm.id).reason_code, "Client.InstanceInitiatedShutdown");
    assert_int_equal(status(&w, a, a_vm.id).n_crashes, 0);
    /* It stays off, also over a restart of the service, until the user asks. */
    daemon_kill(w.compute);
    assert_int_equal(daemon_restart(w.compute, NULL), 0);
    (void)usleep(1500000);
    assert_true(is_state(&w, a_vm.id, "stopped"));
    change(&w, a_vm.id, "running", false, false);
    wait_state(&w, a_vm.id, "running");
    assert_str(status(&w, a, a_vm.id).reason_code, "");
}

static void test_crash_is_noticed(void **state)
{
    static struct world w;
    struct vm vm;
    AUTO(arena_freep) struct arena *a = arena_new(1 << 20);
    world_init(&w, 0);
    run(&w, &vm, "terminate");
    assert_int_equal(kill((pid_t)guest_num(&w, vm.id, "pid"), SIGKILL), 0);
    wait_state(&w, vm.id, "stopped");
    struct instance_status st = status(&w, a, vm.id);
    assert_str(st.reason_code, "Server.InternalError");
    assert_non_null(strstr(arena_cstr(a, st.reason_message), "signal 9"));
    assert_int_equal(st.n_crashes, 1);
    assert_int_equal(st.pid, 0);
    WAIT_UNTIL("folder", !has_run_folder(&w, vm.id));
}

static bool has_rebooted(struct world *w, const char *id, uint64_t n)
{
    AUTO(arena_freep) struct arena *a = arena_new(1 << 18);
    return status(w, a, id).n_reboots == n;
}

static void test_reboot(void **state)
{
    static struct world w;
    struct vm vm;
    world_init(&w, 0);
    run(&w, &vm, "stop");
    uint64_t pid = guest_num(&w, vm.id, "pid");
    change(&w, vm.id, "running", false, true);
    WAIT_UNTIL("reboot", has_rebooted(&w, vm.id, 1));
    WAIT_UNTIL("boot", console_count(&w, vm.id, "BOOT OK") == 2);
    assert_int_equal(console_count(&w, vm.id, "BUTTON"), 1);
    type(&w, vm.id, 'i'); /* a guest that does not listen is reset at the limit */
    WAIT_UNTIL("deaf", console_count(&w, vm.id, "IGNORING") == 1);
    change(&w, vm.id, "running", false, true);
    WAIT_UNTIL("reboot", has_rebooted(&w, vm.id, 2));
    WAIT_UNTIL("boot", console_count(&w, vm.id, "BOOT OK") == 3);
    assert_int_equal(guest_num(&w, vm.id, "pid"), pid);
    assert_true(is_state(&w, vm.id, "running"));
}

static void test_service_killed_guest_runs_on(void **state)
{
    static struct world w;
    struct vm vm, other;
    AUTO(arena_freep) struct arena *a = arena_new(1 << 20);
    world_init(&w, 0);
    run(&w, &vm, "stop");
    run(&w, &other, "stop");
    uint64_t pid = guest_num(&w, vm.id, "pid"), other_pid = guest_num(&w, other.id, "pid");
    for (unsigned i = 0; i < 3; i++) {
        daemon_kill(w.compute);
        assert_int_equal(kill((pid_t)pid, 0), 0);
        assert_int_equal(daemon_restart(w.compute, NULL), 0);
        WAIT_UNTIL("adopted", guest_num(&w, vm.id, "pid") == pid &&
                                  guest_num(&w, other.id, "pid") == other_pid);
    }
    assert_true(is_state(&w, vm.id, "running"));
    assert_int_equal(console_count(&w, vm.id, "BOOT OK"), 1); /* it was never touched */
    WAIT_UNTIL("adopted", try_type(&w, vm.id, 'w'));
    WAIT_UNTIL("disk", console_count(&w, vm.id, "WROTE") == 1);
    /* One guest ends while nobody listens: the end is known afterwards, with its reason. */
    daemon_kill(w.compute);
    assert_int_equal(kill((pid_t)other_pid, SIGSEGV), 0);
    change(&w, vm.id, "stopped", false, false);
    assert_int_equal(daemon_restart(w.compute, NULL), 0);
    wait_state(&w, other.id, "stopped");
    assert_non_null(strstr(arena_cstr(a, status(&w, a, other.id).reason_message), "signal 11"));
    wait_state(&w, vm.id, "stopped");
    assert_int_equal(console_count(&w, vm.id, "BUTTON"), 1);
}

static void test_monitor_killed_guest_runs_on(void **state)
{
    static struct world w;
    struct vm vm;
    world_init(&w, 71000);
    run(&w, &vm, "stop");
    uint64_t pid = guest_num(&w, vm.id, "pid"), monitor = guest_num(&w, vm.id, "monitor_pid");
    assert_int_equal(kill((pid_t)monitor, SIGKILL), 0);
    WAIT_UNTIL("new monitor", guest_num(&w, vm.id, "monitor_pid") != monitor &&
                                  guest_num(&w, vm.id, "pid") == pid &&
                                  guest_num(&w, vm.id, "monitor_pid") != 0);
    WAIT_UNTIL("it works", try_type(&w, vm.id, 'w') &&
                               (usleep(200000), console_count(&w, vm.id, "WROTE") >= 1));
    /* Both at once, and the service too: it finds QEMU by itself. */
    monitor = guest_num(&w, vm.id, "monitor_pid");
    daemon_kill(w.compute);
    assert_int_equal(kill((pid_t)monitor, SIGKILL), 0);
    assert_int_equal(daemon_restart(w.compute, NULL), 0);
    WAIT_UNTIL("adopted", guest_num(&w, vm.id, "pid") == pid);
    assert_true(is_state(&w, vm.id, "running"));
    assert_int_equal(owner_of(guest_num(&w, vm.id, "monitor_pid")), 71100);
    /* What the guest prints before QEMU has taken the new monitor's connection is lost: wait
     * for that first. */
    size_t n = console_count(&w, vm.id, "WROTE");
    WAIT_UNTIL("it works", try_type(&w, vm.id, 'w') &&
                               (usleep(200000), console_count(&w, vm.id, "WROTE") > n));
    change(&w, vm.id, "terminated", false, false);
    wait_state(&w, vm.id, "terminated");
    assert_int_equal(console_count(&w, vm.id, "BUTTON"), 1);
}

/* A monitor of another version, or one that a guest has taken over: it is replaced, QEMU stays. */
static void test_monitor_that_talks_nonsense_is_replaced(void **state)
{
    static struct world w;
    struct vm vm;
    world_init(&w, 0);
    run(&w, &vm, "stop");
    uint64_t pid = guest_num(&w, vm.id, "pid"), monitor = guest_num(&w, vm.id, "monitor_pid");
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    (void)snprintf(at.sun_path, sizeof(at.sun_path), "%.60s/guest/%.24s/mon.sock", w.dir.path,
                   vm.id);
    assert_int_equal(kill((pid_t)monitor, SIGSTOP), 0);
    AUTO_FD fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(unlink(at.sun_path), 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(kill((pid_t)monitor, SIGKILL), 0);
    int conn = accept(fd, NULL, NULL);
    assert_true(conn >= 0);
    (void)unlink(at.sun_path);
    (void)close(steal_fd(&fd));
    assert_int_equal(send(conn, "nonsense", 8, MSG_NOSIGNAL), 8);
    close(conn);
    WAIT_UNTIL("it works", guest_num(&w, vm.id, "monitor_pid") != monitor &&
                               guest_num(&w, vm.id, "pid") == pid && try_type(&w, vm.id, 'w') &&
                               (usleep(200000), console_count(&w, vm.id, "WROTE") >= 1));
    assert_true(is_state(&w, vm.id, "running"));
}

/* Records that cannot be read, or are gone, end nobody's guest; what comes back is served again. */
static void test_records_lost_and_found(void **state)
{
    static struct world w;
    struct vm vm;
    AUTO(arena_freep) struct arena *a = arena_new(1 << 20);
    world_init(&w, 0);
    run(&w, &vm, "stop");
    uint64_t pid = guest_num(&w, vm.id, "pid");
    struct kv_item item;
    struct str key = key_spec(a, "instance", STR(ACCOUNT), str_c(vm.id));
    assert_int_equal(kv_get(w.kv, a, key, &item, NULL), 0);
    const struct kv_op ops[] = {{.type = KV_PUT, .key = key, .value = STR("{\"id\":7}")},
                                {.type = KV_DELETE, .key = key},
                                {.type = KV_PUT, .key = key, .value = item.value}};
    for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
        assert_int_equal(kv_txn(w.kv, NULL, 0, &ops[i], 1, NULL, NULL), 0);
        (void)usleep(500000);
        assert_int_equal(kill((pid_t)pid, 0), 0);
    }
    assert_int_equal(guest_num(&w, vm.id, "pid"), pid);
    /* Our own record is said again when somebody removes it. */
    const struct kv_op gone = {.type = KV_DELETE,
                               .key = key_status(a, "instance", STR(ACCOUNT), str_c(vm.id))};
    (void)usleep(3000000);
    assert_int_equal(kv_txn(w.kv, NULL, 0, &gone, 1, NULL, NULL), 0);
    change(&w, vm.id, "running", false, false);
    wait_state(&w, vm.id, "running");
    change(&w, vm.id, "stopped", false, false);
    wait_state(&w, vm.id, "stopped");
    assert_int_equal(console_count(&w, vm.id, "BUTTON"), 1);
}

/* The worst monitor: it hangs, and QEMU with it. The user's wish is done from outside. */
static void test_hanging_monitor_does_not_keep_a_guest(void **state)
{
    static struct world w;
    struct vm vm;
    world_init(&w, 71000);
    run(&w, &vm, "stop");
    pid_t pid = (pid_t)guest_num(&w, vm.id, "pid");
    pid_t monitor = (pid_t)guest_num(&w, vm.id, "monitor_pid");
    assert_int_equal(kill(monitor, SIGSTOP), 0);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    change(&w, vm.id, "terminated", false, false);
    wait_state(&w, vm.id, "terminated");
    WAIT_UNTIL("end", kill(pid, 0) < 0 && kill(monitor, 0) < 0); /* and no zombies */
    WAIT_UNTIL("folder", !has_run_folder(&w, vm.id));
}

static void test_failed_launch(void **state)
{
    static struct world w;
    struct vm broken, late, restart;
    AUTO(arena_freep) struct arena *a = arena_new(1 << 20);
    world_init(&w, 0);
    atomic_store(&w.is_block_broken, true);
    launch(&w, &broken, "stop", 1, true);
    wait_state(&w, broken.id, "terminated");
    struct instance_status st = status(&w, a, broken.id);
    assert_str(st.reason_code, "Server.InternalError");
    assert_non_null(strstr(arena_cstr(a, st.reason_message), "the volume cannot be read"));
    assert_false(has_run_folder(&w, broken.id));
    atomic_store(&w.is_block_broken, false);
    /* A volume that does not become ready in time. */
    launch(&w, &late, "stop", 1, false);
    WAIT_UNTIL("pending", is_state(&w, late.id, "pending"));
    wait_state(&w, late.id, "terminated");
    assert_non_null(
        strstr(arena_cstr(a, status(&w, a, late.id).reason_message), "not ready in time"));
    /* An instance that ran before is stopped, not terminated, when it does not start. */
    run(&w, &restart, "stop");
    change(&w, restart.id, "stopped", false, false);
    wait_state(&w, restart.id, "stopped");
    atomic_store(&w.is_block_broken, true);
    change(&w, restart.id, "running", false, false);
    WAIT_UNTIL("reason",
               str_eqc(status(&w, a, restart.id).reason_code, "Server.InternalError"));
    assert_true(is_state(&w, restart.id, "stopped"));
    atomic_store(&w.is_block_broken, false);
    change(&w, restart.id, "running", false, false);
    wait_state(&w, restart.id, "running");
}

static void test_volumes_come_and_go(void **state)
{
    static struct world w;
    struct vm one, two;
    const char *vol = "vol-0123456789abcdef0";
    uint64_t slot = 99, again = 99;
    world_init(&w, 0);
    run(&w, &one, "stop");
    run(&w, &two, "stop");
    make_volume(&w, vol, false);
    put_volume(&w, vol, one.id, "/dev/sdf", "attached", false, true);
    WAIT_UNTIL("attached", is_attachment(&w, vol, "attached", &slot));
    assert_int_equal(slot, 1);
    /* This guest has no driver: it never lets go. */
    put_volume(&w, vol, one.id, "/dev/sdf", "detached", false, true);
    WAIT_UNTIL("detaching", is_attachment(&w, vol, "detaching", NULL));
    (void)usleep(2500000);
    assert_true(is_attachment(&w, vol, "detaching", NULL));
    put_volume(&w, vol, one.id, "/dev/sdf", "detached", true, true);
    WAIT_UNTIL("detached", is_attachment(&w, vol, "detached", NULL));
    /* The lock of the volume is free: another guest can have it. */
    put_volume(&w, vol, two.id, "/dev/sdf", "attached", false, true);
    WAIT_UNTIL("attached", is_attachment(&w, vol, "attached", &slot));
    assert_int_equal(slot, 1);
    /* Its slot is kept over stop and start, and a stopped instance gives volumes up at once. */
    change(&w, two.id, "stopped", false, false);
    wait_state(&w, two.id, "stopped");
    assert_true(is_attachment(&w, vol, "attached", &again));
    assert_int_equal(again, slot);
    change(&w, two.id, "running", false, false);
    wait_state(&w, two.id, "running");
    assert_true(is_attachment(&w, vol, "attached", &again));
    assert_int_equal(again, slot);
    WAIT_UNTIL("boot", console_count(&w, two.id, "BOOT OK") == 2);
    change(&w, two.id, "stopped", true, false);
    wait_state(&w, two.id, "stopped");
    put_volume(&w, vol, two.id, "/dev/sdf", "detached", false, true);
    WAIT_UNTIL("detached", is_attachment(&w, vol, "detached", NULL));
    /* The rescue: the root of the stopped instance goes to the other one and comes back. */
    put_volume(&w, two.root, two.id, "/dev/xvda", "detached", false, true);
    WAIT_UNTIL("detached", is_attachment(&w, two.root, "detached", NULL));
    put_volume(&w, two.root, one.id, "/dev/sdg", "attached", false, true);
    WAIT_UNTIL("attached", is_attachment(&w, two.root, "attached", &slot));
    assert_true(slot >= 1);
    change(&w, one.id, "stopped", true, false);
    wait_state(&w, one.id, "stopped");
    put_volume(&w, two.root, one.id, "/dev/sdg", "detached", false, true);
    WAIT_UNTIL("detached", is_attachment(&w, two.root, "detached", NULL));
    put_volume(&w, two.root, two.id, "/dev/xvda", "attached", false, true);
    WAIT_UNTIL("attached", is_attachment(&w, two.root, "attached", &slot));
    assert_int_equal(slot, 0);
    change(&w, two.id, "running", false, false);
    wait_state(&w, two.id, "running");
    WAIT_UNTIL("boot", console_count(&w, two.id, "BOOT OK") == 3);
}

static void test_host_was_restarted(void **state)
{
    static struct world w;
    struct vm runs, stops;
    AUTO(arena_freep) struct arena *a = arena_new(1 << 20);
    world_init(&w, 0);
    run(&w, &runs, "stop");
    run(&w, &stops, "stop");
    const struct vm *both[] = {&runs, &stops};
    uint64_t pids[4];
    for (unsigned i = 0; i < 2; i++) {
        pids[2 * i] = guest_num(&w, both[i]->id, "monitor_pid");
        pids[2 * i + 1] = guest_num(&w, both[i]->id, "pid");
    }
    daemon_kill(w.compute);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(kill((pid_t)pids[i], SIGKILL), 0);
    }
    for (unsigned i = 0; i < 4; i++) {
        struct proc_id id;
        WAIT_UNTIL("end", proc_id_of((pid_t)pids[i], &id) < 0 || !proc_is_alive(&id));
    }
    for (unsigned i = 0; i < 2;
         i++) { /* as a boot does: the run folder is empty, and the boot is another */
        char cmd[PATH_MAX];
        static const char *const names[] = {
            "mon.sock", "qmp.sock", "console.sock", "qemu.pid", "monitor.log", "note.json", ""};
        for (size_t k = 0; k < ARRAY_LEN(names); k++) {
            (void)snprintf(cmd, sizeof(cmd), "%s/guest/%s/%s", w.dir.path, both[i]->id,
                           names[k]);
            (void)remove(cmd);
        }
        struct instance_status st = status(&w, a, both[i]->id);
        st.boot_id = STR("another-boot");
        put(&w, a, key_status(a, "instance", STR(ACCOUNT), st.id), &instance_status_desc, &st);
    }
    change(&w, stops.id, "stopped", false, false);
    assert_int_equal(daemon_restart(w.compute, NULL), 0);
    WAIT_UNTIL("boot", console_count(&w, runs.id, "BOOT OK") == 2);
    wait_state(&w, runs.id, "running");
    wait_state(&w, stops.id, "stopped");
    assert_int_equal(status(&w, a, runs.id).n_starts, 2);
    assert_int_equal(status(&w, a, runs.id).n_crashes, 0);
}

static void test_store_is_away(void **state)
{
    static struct world w;
    struct vm vm;
    world_init(&w, 0);
    run(&w, &vm, "stop");
    daemon_kill(w.state);
    type(&w, vm.id, 'w'); /* guests and their consoles do not need the store */
    WAIT_UNTIL("disk", console_count(&w, vm.id, "WROTE") == 1);
    type(&w, vm.id, 'q');
    (void)usleep(500000);
    assert_int_equal(daemon_restart(w.state, NULL), 0);
    wait_state(&w, vm.id, "stopped"); /* what happened meanwhile is told */
    WAIT_UNTIL("folder", !has_run_folder(&w, vm.id));
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        return 2;
    }
    state_exe = argv[1];
    compute_exe = argv[2];
    sector = argv[3];
    disk_server = argv[4];
    if (unshare(CLONE_NEWNET) < 0) { /* taps of the tests */
        print_error("a network namespace is needed: run as root\n");
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_whole_life, tear_down),
        cmocka_unit_test_teardown(test_deaf_guest_is_ended_by_force, tear_down),
        cmocka_unit_test_teardown(test_guest_switches_itself_off, tear_down),
        cmocka_unit_test_teardown(test_crash_is_noticed, tear_down),
        cmocka_unit_test_teardown(test_reboot, tear_down),
        cmocka_unit_test_teardown(test_service_killed_guest_runs_on, tear_down),
        cmocka_unit_test_teardown(test_monitor_killed_guest_runs_on, tear_down),
        cmocka_unit_test_teardown(test_hanging_monitor_does_not_keep_a_guest, tear_down),
        cmocka_unit_test_teardown(test_monitor_that_talks_nonsense_is_replaced, tear_down),
        cmocka_unit_test_teardown(test_records_lost_and_found, tear_down),
        cmocka_unit_test_teardown(test_failed_launch, tear_down),
        cmocka_unit_test_teardown(test_volumes_come_and_go, tear_down),
        cmocka_unit_test_teardown(test_host_was_restarted, tear_down),
        cmocka_unit_test_teardown(test_store_is_away, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
