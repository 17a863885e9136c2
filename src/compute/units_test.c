/* Instance types, the console log, the QEMU command line, the monitor's
 * messages, host numbers. */
#include "base/file.h"
#include "base/test.h"
#include "compute/console_log.h"
#include "compute/guest_dir.h"
#include "compute/guest_proto.h"
#include "compute/host.h"
#include "compute/instance_types.h"
#include "compute/qemu_args.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

/* ---- instance types ---- */

static bool has_type(const struct instance_type_list *l, const char *name)
{
    for (size_t i = 0; i < l->n; i++) {
        if (str_eqc(l->v[i].name, name)) {
            return true;
        }
    }
    return false;
}

static void test_generations(void **state)
{
    static const struct {
        const char *name, *cpuinfo, *arch, *want;
    } cases[] = {
        {"Ice Lake",
         "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 106\nmodel name\t: Xeon\n\n",
         "x86_64", "6i"},
        {"Sapphire Rapids", "vendor_id : GenuineIntel\ncpu family : 6\nmodel : 143\n", "x86_64",
         "7i"},
        {"Cascade Lake", "vendor_id : GenuineIntel\ncpu family : 6\nmodel : 85\n", "x86_64",
         "5"},
        {"Milan", "vendor_id : AuthenticAMD\ncpu family : 25\nmodel : 1\n", "x86_64", "6a"},
        {"Genoa", "vendor_id : AuthenticAMD\ncpu family : 25\nmodel : 17\n", "x86_64", "7a"},
        {"Turin", "vendor_id : AuthenticAMD\ncpu family : 26\nmodel : 2\n", "x86_64", "8a"},
        {"a desktop nobody knows", "vendor_id : GenuineIntel\ncpu family : 6\nmodel : 1\n",
         "x86_64", ""},
        {"another maker", "vendor_id : CentaurHauls\ncpu family : 6\nmodel : 106\n", "x86_64",
         ""},
        {"Neoverse N1", "processor : 0\nCPU implementer : 0x41\nCPU part : 0xd0c\n", "arm64",
         "6g"},
        {"empty", "", "x86_64", ""},
        {"the first processor counts",
         "vendor_id : GenuineIntel\ncpu family : 6\nmodel : 106\n\nvendor_id : x\nmodel : 1\n",
         "x86_64", "6i"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct cpu_id c;
        struct str model;
        cpu_id_parse(str_c(cases[i].cpuinfo), cases[i].arch, &c, &model);
        if (strcmp(cpu_generation(&c), cases[i].want) != 0) {
            fail_msg("%s: \"%s\"", cases[i].name, cpu_generation(&c));
        }
    }
}

static void test_types_of_a_host(void **state)
{
    AUTO(arena_freep) struct arena *a = arena_new(1 << 20);
    struct instance_type_list l;
    const struct cpu_id ice = {
        .arch = "x86_64", .vendor = "GenuineIntel", .family = 6, .model = 0x6a};
    instance_types_for(a, &ice, 16, 64 << 10, &l);
    static const char *const here[] = {"t3.nano",     "t3a.micro",   "c6i.large",
                                       "m6i.4xlarge", "r6i.2xlarge", "m6a.large",
                                       "snc1.medium", "sbe1.4xlarge"};
    static const char *const not_here[] = {"m6i.8xlarge", "r6i.4xlarge", "t4g.micro",
                                           "m5.large",    "m6i.medium",  "m7i.large"};
    for (size_t i = 0; i < ARRAY_LEN(here); i++) {
        if (!has_type(&l, here[i])) {
            fail_msg("%s is missing", here[i]);
        }
    }
    for (size_t i = 0; i < ARRAY_LEN(not_here); i++) {
        if (has_type(&l, not_here[i])) {
            fail_msg("%s is offered", not_here[i]);
        }
    }
    for (size_t i = 0; i < l.n; i++) { /* nothing that could not start on an empty host */
        assert_true(l.v[i].memory_mib <= 64 << 10 &&
                    (l.v[i].is_burstable || l.v[i].n_vcpus <= 16));
        assert_int_equal(l.v[i].is_burstable, l.v[i].name.p[0] == 't');
        for (size_t k = 0; k < i; k++) {
            assert_false(str_eq(l.v[i].name, l.v[k].name));
        }
    }
    const struct cpu_id unknown = {.arch = "x86_64", .vendor = ""};
    instance_types_for(a, &unknown, 1, 2048, &l);
    assert_true(has_type(&l, "t3.small") && has_type(&l, "snc1.small"));
    assert_false(has_type(&l, "t3.medium") || has_type(&l, "snc1.medium") ||
                 has_type(&l, "c6i.large"));
    const struct cpu_id arm = {
        .arch = "arm64", .vendor = "", .implementer = 0x41, .part = 0xd40};
    instance_types_for(a, &arm, 64, 256 << 10, &l);
    assert_true(has_type(&l, "t4g.nano") && has_type(&l, "c7g.medium") &&
                has_type(&l, "m7g.16xlarge"));
    assert_false(has_type(&l, "t3.nano") || has_type(&l, "c7g.24xlarge"));
}

static void test_host_numbers(void **state)
{
    uint64_t mib = 0;
    assert_int_equal(
        host_meminfo_mib(STR("MemTotal:       24605196 kB\nMemFree: 1 kB\n"), &mib), 0);
    assert_int_equal(mib, 24028);
    assert_int_equal(host_meminfo_mib(STR("MemFree: 1 kB\n"), &mib), -EINVAL);
    assert_int_equal(host_usable_vcpus(1), 1);
    assert_int_equal(host_usable_vcpus(2), 2);
    assert_int_equal(host_usable_vcpus(8), 7);
    assert_int_equal(host_usable_vcpus(128), 126);
    assert_int_equal(host_usable_memory_mib(4096), 3584);
    assert_int_equal(host_usable_memory_mib(100000), 90000);
    assert_int_equal(host_usable_memory_mib(256), 0);
}

/* ---- console ---- */

static void test_console_rotates(void **state)
{
    char dir[] = "/tmp/spx-console-XXXXXX";
    assert_non_null(mkdtemp(dir));
    int fd = -1, old_fd = -1;
    AUTO_BUF tail;
    buf_init(&tail, 1 << 20);
    uint64_t at = 1;
    assert_int_equal(console_log_tail(dir, 100, &tail, &at, NULL), 0);
    assert_true(tail.n == 0 && at == 0);
    assert_int_equal(console_log_open(dir, &fd, &old_fd, NULL), 0);
    struct console_log c;
    assert_int_equal(console_log_init(&c, fd, old_fd, 1000), 0);
    AUTO_BUF all;
    buf_init(&all, 1 << 20);
    unsigned n = 0;
    for (size_t size = 0; size < 5000; n++) {
        char line[32];
        size_t len = (size_t)snprintf(line, sizeof(line), "line %u\n", n);
        buf_add(&all, str_n(line, len));
        assert_int_equal(console_log_write(&c, str_n(line, len)), 0);
        size += len;
        for (size_t want = 1; want <= 1000;
             want += 333) { /* whatever was written last is there, however it was cut */
            buf_clear(&tail);
            assert_int_equal(console_log_tail(dir, want, &tail, &at, NULL), 0);
            size_t k = MIN(want, all.n);
            assert_int_equal(tail.n, k);
            assert_memory_equal(tail.p, all.p + all.n - k, k);
        }
    }
    assert_true(at > 0);
    /* Another monitor goes on where the first one ended; more than a file at once is cut, not
     * refused. */
    assert_int_equal(console_log_init(&c, fd, old_fd, 1000), 0);
    char much[3500];
    memset(much, 'x', sizeof(much));
    much[3499] = 'y';
    assert_int_equal(console_log_write(&c, str_n(much, sizeof(much))), 0);
    buf_clear(&tail);
    assert_int_equal(console_log_tail(dir, 10, &tail, &at, NULL), 0);
    assert_memory_equal(tail.p, "xxxxxxxxxy", 10);
    close(fd);
    close(old_fd);
    char path[64];
    (void)snprintf(path, sizeof(path), "%s/console.log", dir);
    assert_int_equal(unlink(path), 0);
    (void)snprintf(path, sizeof(path), "%s/console.log.1", dir);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

static void test_full_disk_loses_text_only(void **state)
{
    int full = open("/dev/full", O_RDWR | O_CLOEXEC),
        null = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct console_log c;
    assert_int_equal(console_log_init(&c, full, null, 1000), 0);
    assert_int_equal(console_log_write(&c, STR("text")), -ENOSPC);
    assert_int_equal(console_log_write(&c, STR("text")), -ENOSPC);
    close(full);
    close(null);
}

/* ---- QEMU's command line ---- */

static struct qemu_launch plain(void)
{
    struct qemu_launch l = {.id = "i-0123456789abcdef0",
                            .arch = "x86_64",
                            .type = "t3.micro",
                            .n_vcpus = 2,
                            .memory_mib = 1024,
                            .qmp_fd = 6,
                            .console_fd = 7,
                            .vars_fd = -1,
                            .pid_file = "/run/x/qemu.pid"};
    return l;
}

static bool has_arg(const char *const *argv, const char *option, const char *part)
{
    for (size_t i = 0; argv[i] && argv[i + 1]; i++) {
        if (strcmp(argv[i], option) == 0 && strstr(argv[i + 1], part)) {
            return true;
        }
    }
    return false;
}

static void test_command_line(void **state)
{
    AUTO(arena_freep) struct arena *a = arena_new(1 << 20);
    const char *const *argv = NULL;
    struct qemu_launch l = plain();
    l.disk[0] = (struct qemu_disk){
        .path = "/run/x/a.sock", .volume_id = "vol-0123456789abcdef0", .is_root = true};
    l.disk[5] =
        (struct qemu_disk){.path = "/run/x/b.sock", .volume_id = "vol-0fffffffffffffff0"};
    l.nic[0] = (struct qemu_nic){
        .fds = {10, 11}, .n_queues = 2, .mac = "02:00:00:00:00:01", .mtu = 9001};
    assert_int_equal(qemu_args(a, &l, &argv, NULL), 0);
    assert_string_equal(argv[0], "qemu-system-x86_64");
    assert_string_equal(argv[1], "-name"); /* spawn.c finds QEMU by these two */
    assert_true(has_arg(argv, "-name", "guest=i-0123456789abcdef0,"));
    static const struct {
        const char *option, *part;
    } want[] = {
        {"-machine", "q35"},
        {"-accel", "tcg,tb-size=128"},
        {"-machine", "memory-backend=mem"},
        {"-cpu", "max"},
        {"-object", "memory-backend-memfd,id=mem,size=1024M,share=on"},
        {"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny"},
        {"-uuid", "ec201234-5678-9abc-def0-"},
        {"-smbios", "serial=ec201234-5678-9abc-def0-"},
        {"-smbios", "asset=i-0123456789abcdef0"},
        {"-smbios", "manufacturer=Spinifex"},
        {"-chardev", "id=qmp,fd=6,server=on"},
        {"-chardev", "id=con,fd=7,server=on"},
        /* Without KVM: NBD (qemu_args.h says why). Without reconnecting a guest would lose its
         * disks with the block service. */
        {"-blockdev",
         "{\"driver\":\"nbd\",\"node-name\":\"n0.vol-0123456789abcdef0\",\"server\":{"
         "\"type\":\"unix\",\"path\":\"/run/x/a.sock\"},\"export\":"
         "\"vol-0123456789abcdef0\",\"reconnect-delay\":3600"},
        {"-blockdev", "{\"driver\":\"raw\",\"node-name\":\"d5\",\"file\":"
                      "\"n5.vol-0fffffffffffffff0\",\"discard\":\"unmap\"}"},
        {"-device",
         "\"driver\":\"virtio-blk-pci\",\"id\":\"disk0\",\"bus\":\"rp0\",\"drive\":\"d0\","
         "\"serial\":\"vol0123456789abcdef0\",\"write-cache\":\"on\","
         "\"werror\":\"report\",\"rerror\":\"report\",\"num-queues\":2,\"bootindex\":0}"},
        {"-device", "\"bus\":\"rp5\",\"drive\":\"d5\",\"serial\":\"vol0fffffffffffffff0\""},
        {"-netdev", "tap,id=net0,fds=10:11"},
        {"-device", "virtio-net-pci,id=nic0,bus=rp16,netdev=net0,mac=02:00:00:00:00:01,romfile="
                    ",host_mtu=9001,mq=on,vectors=6"},
        {"-device", "pcie-root-port,id=rp19,bus=pcie.0,chassis=20,addr=4.3,multifunction=on"},
        {"-device", "virtio-rng-pci"},
        {"-rtc", "base=utc"},
        {"-pidfile", "/run/x/qemu.pid"},
    };
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        if (!has_arg(argv, want[i].option, want[i].part)) {
            fail_msg("no %s %s", want[i].option, want[i].part);
        }
    }
    l = plain();
    l.is_kvm = true;
    l.disk[0] = (struct qemu_disk){
        .path = "/run/x/a.sock", .volume_id = "vol-0123456789abcdef0", .is_root = true};
    l.is_uefi = true;
    l.vars_fd = 12;
    l.firmware = "/usr/share/OVMF/OVMF_CODE_4M.fd";
    l.nic[0] =
        (struct qemu_nic){.fds = {10}, .n_queues = 1, .mac = "02:00:00:00:00:01", .mtu = 1500};
    assert_int_equal(qemu_args(a, &l, &argv, NULL), 0);
    assert_true(
        has_arg(argv, "-machine", "accel=kvm,memory-backend=mem,pflash0=code,pflash1=vars"));
    assert_true(has_arg(argv, "-cpu", "host"));
    assert_true(has_arg(argv, "-chardev",
                        "socket,id=c0.vol-0123456789abcdef0,path=/run/x/a.sock,reconnect=1"));
    assert_true(
        has_arg(argv, "-device",
                "{\"driver\":\"vhost-user-blk-pci\",\"id\":\"disk0\",\"bus\":\"rp0\","
                "\"chardev\":\"c0.vol-0123456789abcdef0\",\"num-queues\":2,\"bootindex\":0}"));
    assert_true(has_arg(argv, "-add-fd", "fd=12,set=1"));
    assert_true(has_arg(argv, "-netdev", "tap,id=net0,fd=10"));
    assert_false(has_arg(argv, "-device", "mq=on"));
}

static void test_bad_launches_are_refused(void **state)
{
    AUTO(arena_freep) struct arena *a = arena_new(1 << 20);
    const char *const *argv = NULL;
    struct qemu_launch l = plain();
    l.id = "i-1,readonly=on";
    assert_int_equal(qemu_args(a, &l, &argv, NULL), -EINVAL);
    l = plain();
    l.type = "t3.micro,x=\"";
    assert_int_equal(qemu_args(a, &l, &argv, NULL), -EINVAL);
    l = plain();
    l.arch = "sparc";
    assert_int_equal(qemu_args(a, &l, &argv, NULL), -EINVAL);
    l = plain();
    l.arch = "arm64"; /* by UEFI only */
    assert_int_equal(qemu_args(a, &l, &argv, NULL), -EINVAL);
    l = plain();
    l.n_vcpus = 0;
    assert_int_equal(qemu_args(a, &l, &argv, NULL), -EINVAL);
    l = plain();
    l.disk[1] = (struct qemu_disk){.path = "/a", .volume_id = "vol-1\",\"x"};
    assert_int_equal(qemu_args(a, &l, &argv, NULL), -EINVAL);
    l = plain();
    l.disk[1] =
        (struct qemu_disk){.path = "/a,server=on", .volume_id = "vol-0fffffffffffffff0"};
    assert_int_equal(qemu_args(a, &l, &argv, NULL), -EINVAL);
    l = plain();
    l.nic[0] = (struct qemu_nic){.fds = {4}, .n_queues = 1, .mac = "02:00,x=y"};
    assert_int_equal(qemu_args(a, &l, &argv, NULL), -EINVAL);
    assert_null(argv);
}

static void test_volume_of_a_connection(void **state)
{
    static const struct {
        const char *label;
        bool is_ok;
        unsigned slot;
        const char *id;
    } cases[] = {
        {"c0.vol-0123456789abcdef0", true, 0, "vol-0123456789abcdef0"},
        {"c15.vol-01234567", true, 15, "vol-01234567"},
        {"n3.vol-01234567", true, 3, "vol-01234567"},
        {"m0.vol-01234567", true, 0, "vol-01234567"},
        {"d0.vol-01234567", false, 0, ""},
        {"c16.vol-01234567", false, 0, ""},
        {"c.vol-01234567", false, 0, ""},
        {"c-1.vol-01234567", false, 0, ""},
        {"c1.vol-0123456789abcdef01234", false, 0, ""},
        {"c1.vol-ABCDEF01", false, 0, ""},
        {"c1.eni-01234567", false, 0, ""},
        {"qmp", false, 0, ""},
        {"", false, 0, ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        unsigned slot = 99;
        char letter = 0, id[GM_NAME_MAX] = "";
        assert_int_equal(qemu_disk_of_label(str_c(cases[i].label), &letter, &slot, id),
                         cases[i].is_ok);
        assert_string_equal(id, cases[i].id);
        if (cases[i].is_ok) {
            char label[QEMU_LABEL_MAX];
            assert_int_equal(slot, cases[i].slot);
            qemu_disk_label(letter, slot, id, label);
            assert_string_equal(label, cases[i].label);
        }
    }
    assert_int_equal(qemu_disk_queues(0), 1);
    assert_int_equal(qemu_disk_queues(3), 3);
    assert_int_equal(qemu_disk_queues(64), 8);
}

static void test_uuid(void **state)
{
    char a[QEMU_UUID_SIZE], b[QEMU_UUID_SIZE];
    qemu_uuid("i-0123456789abcdef0", a);
    qemu_uuid("i-0123456789abcdef0", b);
    assert_string_equal(a, b);
    assert_memory_equal(a, "ec201234-5678-9abc-def0", 23);
    assert_int_equal(strlen(a), 36);
    qemu_uuid("i-0123456789abcdef1", b);
    assert_string_not_equal(a, b);
    qemu_uuid("i-01234567", b); /* the old, short form */
    assert_int_equal(strlen(b), 36);
    assert_memory_equal(b, "ec201234-567", 12);
}

/* ---- the monitor's messages ---- */

static void test_messages_are_checked(void **state)
{
    union gm_msg m;
    memset(&m, 0, sizeof(m));
    gm_cmd_init(&m.cmd, GM_OP_DISK_ADD, 7);
    assert_int_equal(gm_cmd_check(&m, sizeof(m.cmd)), 0);
    assert_int_equal(gm_cmd_check(&m, sizeof(m.cmd) - 1), -EPROTO);
    assert_int_equal(gm_answer_check(&m, sizeof(m.cmd)), -EPROTO);
    m.cmd.slot = GM_N_DISKS;
    assert_int_equal(gm_cmd_check(&m, sizeof(m.cmd)), -EPROTO);
    m.cmd.slot = 0;
    memset(m.cmd.name, 'x', sizeof(m.cmd.name)); /* no NUL */
    assert_int_equal(gm_cmd_check(&m, sizeof(m.cmd)), -EPROTO);
    gm_result_init(&m.result, 7, -EIO, "bad \x01\xff text");
    assert_int_equal(gm_answer_check(&m, sizeof(m.result)), 0);
    assert_string_equal(m.result.text, "bad ?? text");
    m.result.code = 1;
    assert_int_equal(gm_answer_check(&m, sizeof(m.result)), -EPROTO);
    gm_state_init(&m.state);
    assert_int_equal(gm_answer_check(&m, sizeof(m.state)), 0);
    m.state.phase = GM_PHASE_EXITED; /* without an end */
    assert_int_equal(gm_answer_check(&m, sizeof(m.state)), -EPROTO);
    m.state.exit = GM_EXIT_GUEST;
    assert_int_equal(gm_answer_check(&m, sizeof(m.state)), 0);
    m.state.head.version++;
    assert_int_equal(gm_answer_check(&m, sizeof(m.state)), -EPROTO);
    assert_int_equal(gm_answer_check(&m, 3), -EPROTO);
}

/* ---- notes ---- */

static void test_note_round_trip(void **state)
{
    char dir[] = "/tmp/spx-note-XXXXXX", path[128];
    assert_non_null(mkdtemp(dir));
    const struct guest_dirs d = {.run_dir = dir, .data_dir = dir};
    const char *id = "i-0123456789abcdef0";
    struct guest_note n = {.id = "i-0123456789abcdef0",
                           .account = "111122223333",
                           .boot_id = "b",
                           .arch = "x86_64",
                           .accel = "tcg",
                           .uid_slot = 3,
                           .uid = 70103,
                           .monitor = {12, 345},
                           .qemu = {13, UINT64_C(1) << 60}},
                      got;
    assert_int_equal(guest_note_read(&d, id, &got, NULL), -ENOENT);
    (void)snprintf(path, sizeof(path), "%s/guest/%s", dir, id);
    assert_int_equal(file_mkdirs(path, 0700, NULL), 0);
    assert_int_equal(guest_note_write(&d, &n, NULL), 0);
    assert_int_equal(guest_note_read(&d, id, &got, NULL), 0);
    assert_string_equal(got.account, n.account);
    assert_string_equal(got.boot_id, n.boot_id);
    assert_int_equal(got.uid, n.uid);
    assert_int_equal(got.uid_slot, n.uid_slot);
    assert_int_equal(got.monitor.start, n.monitor.start);
    assert_int_equal(got.qemu.start, n.qemu.start);
    (void)snprintf(path, sizeof(path), "%s/guest/%s/note.json", dir, id);
    assert_int_equal(
        file_write_atomic(path, STR("{\"v\":1,\"id\":\"i-00000000000000000\"}"), 0600, NULL),
        0);
    assert_int_equal(guest_note_read(&d, id, &got, NULL), -EINVAL);
    assert_int_equal(file_write_atomic(path, STR("{"), 0600, NULL), 0); /* torn */
    assert_int_equal(guest_note_read(&d, id, &got, NULL), -EINVAL);
    guest_run_remove(&d, "../../etc"); /* nothing but ids becomes a path */
    guest_run_remove(&d, id);
    (void)snprintf(path, sizeof(path), "%s/guest", dir);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_generations),
        cmocka_unit_test(test_types_of_a_host),
        cmocka_unit_test(test_host_numbers),
        cmocka_unit_test(test_console_rotates),
        cmocka_unit_test(test_full_disk_loses_text_only),
        cmocka_unit_test(test_volume_of_a_connection),
        cmocka_unit_test(test_command_line),
        cmocka_unit_test(test_bad_launches_are_refused),
        cmocka_unit_test(test_uuid),
        cmocka_unit_test(test_messages_are_checked),
        cmocka_unit_test(test_note_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
