/* Runs the probe guest under TCG (its code is right), and the probe itself on what this host
 * has. */
#include "base/file.h"
#include "base/test.h"
#include "base/time.h"
#include "compute/kvm_probe.h"
#include "loop/child.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>

static char root[] = "/tmp/spx-kvm-XXXXXX";

static void test_guest_code_runs(void **state)
{
    uint8_t rom[KVM_PROBE_ROM_SIZE];
    kvm_probe_rom(rom);
    AUTO_FD fd = memfd_create("rom", MFD_CLOEXEC);
    assert_int_equal(file_write_all(fd, rom, sizeof(rom)), 0);
    const char *const argv[] = {"qemu-system-x86_64",
                                "-nodefaults",
                                "-display",
                                "none",
                                "-machine",
                                "q35,accel=tcg",
                                "-cpu",
                                "max,la57=off",
                                "-m",
                                "16",
                                "-bios",
                                "/proc/self/fd/3",
                                "-device",
                                "isa-debug-exit,iobase=0xf4,iosize=0x04",
                                NULL};
    const struct child_fd fds[] = {{.fd = fd, .target = 3}};
    const struct child_opts o = {.argv = argv, .fds = fds, .n_fds = 1};
    pid_t pid = 0;
    struct err err = ERR_INIT;
    assert_int_equal(child_spawn(&o, &pid, &err), 0);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), KVM_PROBE_EXIT);
}

static void test_no_device(void **state)
{
    struct kvm_answer a;
    const struct kvm_probe_opts o = {.run_dir = root,
                                     .boot_id = "b1",
                                     .arch = "x86_64",
                                     .device = "/nonexistent/kvm",
                                     .timeout_ns = NS_PER_S};
    kvm_probe(&o, &a);
    assert_false(a.is_usable);
    assert_non_null(strstr(a.reason, "/nonexistent/kvm"));
}

/* A device that is none: QEMU fails, or hangs; the answer comes within the limit and says why.
 * The next call is answered from the note; another boot asks again. */
static void test_answer_is_remembered(void **state)
{
    struct kvm_probe_opts o = {.run_dir = root,
                               .boot_id = "b2",
                               .arch = "x86_64",
                               .device = "/dev/null",
                               .qemu_path = "/bin/false",
                               .timeout_ns = 5 * NS_PER_S};
    struct kvm_answer a, again;
    kvm_probe(&o, &a);
    assert_false(a.is_usable);
    assert_true(a.reason[0] != '\0');
    o.qemu_path = "/nonexistent/qemu"; /* would give another reason */
    kvm_probe(&o, &again);
    assert_string_equal(a.reason, again.reason);
    o.boot_id = "b3";
    kvm_probe(&o, &again);
    assert_string_not_equal(a.reason, again.reason);
}

static void test_hanging_guest_is_ended(void **state)
{
    char script[64];
    (void)snprintf(script, sizeof(script), "%s/hang", root);
    struct err err = ERR_INIT;
    assert_int_equal(file_write_atomic(script, STR("#!/bin/sh\nexec sleep 60\n"), 0700, &err),
                     0);
    const struct kvm_probe_opts o = {.run_dir = root,
                                     .boot_id = "b4",
                                     .arch = "x86_64",
                                     .device = "/dev/null",
                                     .qemu_path = script,
                                     .timeout_ns = NS_PER_S};
    struct kvm_answer a;
    uint64_t from = time_mono_ns();
    kvm_probe(&o, &a);
    assert_true(time_mono_ns() - from < 10 * NS_PER_S);
    assert_false(a.is_usable);
    assert_non_null(strstr(a.reason, "did not run within 1 s"));
    (void)unlink(script);
}

static void test_real_device(void **state)
{
    const struct kvm_probe_opts o = {.run_dir = root,
                                     .boot_id = "b5",
                                     .arch = "x86_64",
                                     .device = "/dev/kvm",
                                     .timeout_ns = 3 * NS_PER_S};
    struct kvm_answer a;
    kvm_probe(&o, &a);
    assert_true(a.reason[0] != '\0'); /* either answer is right: it depends on the host */
    print_message("here: %s (%s)\n", a.is_usable ? "kvm" : "tcg", a.reason);
}

int main(void)
{
    if (!mkdtemp(root)) {
        return 2;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_guest_code_runs),
        cmocka_unit_test(test_no_device),
        cmocka_unit_test(test_answer_is_remembered),
        cmocka_unit_test(test_hanging_guest_is_ended),
        cmocka_unit_test(test_real_device),
    };
    int n = cmocka_run_group_tests(tests, NULL, NULL);
    char path[64];
    (void)snprintf(path, sizeof(path), "%s/kvm-probe.json", root);
    (void)unlink(path);
    (void)rmdir(root);
    return n;
}
