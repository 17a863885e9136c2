#include "base/test.h"
#include "spx/doctor.h"
#include "spx/ports.h"
#include "testkit/tmpdir.h"
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* A host of a few files. */
struct host {
    struct tmpdir dir;
    struct doctor d;
};

static void host_init(struct host *h)
{
    memset(h, 0, sizeof(*h));
    tmpdir_init(&h->dir, "doctor");
    h->d.a = arena_new(8u << 20);
    h->d.root = h->dir.path;
}

static void host_done(struct host *h)
{
    arena_free(h->d.a);
    tmpdir_done(&h->dir);
}

static void put(struct host *h, const char *path, const char *text)
{
    char full[PATH_MAX];
    (void)snprintf(full, sizeof(full), "%s%s", h->dir.path, path);
    for (char *p = full + strlen(h->dir.path) + 1; *p; p++) {
        if (*p == '/') {
            *p = '\0';
            (void)mkdir(full, 0755);
            *p = '/';
        }
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static const struct doctor_finding *find(const struct host *h, const char *name)
{
    for (size_t i = 0; i < h->d.n; i++) {
        if (strcmp(h->d.v[i].name, name) == 0) {
            return &h->d.v[i];
        }
    }
    return NULL;
}

static void test_what_a_host_lacks_is_named_with_its_cure(void **state)
{
    static const struct {
        const char *file, *text, *name;
        enum doctor_state state;
        const char *what, *cure; /* parts of them */
    } cases[] = {
        {"/proc/cpuinfo", "flags\t\t: fpu hypervisor\n", "cpu", DOCTOR_WARN, "in this VM",
         "nested"},
        {"/proc/cpuinfo", "flags\t\t: fpu sse\n", "cpu", DOCTOR_WARN, "no vmx", "BIOS"},
        {"/proc/cpuinfo", "flags\t\t: fpu vmx\n", "kvm", DOCTOR_WARN, "no /dev/kvm",
         "modprobe"},
        {"/proc/cpuinfo", "Features\t: fp asimd\n", "kvm", DOCTOR_WARN, "no /dev/kvm",
         "modprobe"},
        {"/.dockerenv", "", "cpu", DOCTOR_OK, NULL, NULL},
        {"/proc/sys/kernel/io_uring_disabled", "2\n", "io_uring", DOCTOR_FAIL, "is 2",
         "sysctl"},
        {"/proc/sys/kernel/io_uring_disabled", "0\n", "io_uring", DOCTOR_OK, "allowed", NULL},
        {"/proc/meminfo", "MemTotal: 9 kB\nMemAvailable:  400000 kB\n", "memory", DOCTOR_FAIL,
         "390 MiB", "memory"},
        {"/proc/meminfo", "MemAvailable:  800000 kB\n", "memory", DOCTOR_WARN, "781 MiB",
         "memory"},
        {"/proc/meminfo", "MemAvailable:  8000000 kB\n", "memory", DOCTOR_OK, "7812 MiB", NULL},
        {"/proc/meminfo", "", "memory", DOCTOR_WARN, "cannot be read", "mount"},
        {"/dev/net/tun", "", "tun", DOCTOR_OK, "is there", NULL},
        {"/dev/vhost-net", "", "vhost-net", DOCTOR_OK, "is there", NULL},
        {"/dev/kmsg", "4,5;audit: apparmor=\"DENIED\" profile=\"x\" comm=\"spx-vpcd\"\n",
         "denials", DOCTOR_FAIL, "1 times", "journalctl"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct host h;
        host_init(&h);
        put(&h, cases[i].file, cases[i].text);
        doctor_host(&h.d, h.dir.path);
        const struct doctor_finding *f = find(&h, cases[i].name);
        if (cases[i].what == NULL) {
            host_done(&h);
            continue;
        }
        if (!f || f->state != cases[i].state ||
            str_find_str(f->what, str_c(cases[i].what)) < 0 ||
            (cases[i].cure != NULL) != str_is_set(f->cure) ||
            (cases[i].cure && str_find_str(f->cure, str_c(cases[i].cure)) < 0)) {
            fail_msg("%zu: %s: %.*s -> %.*s", i, f ? f->name : "nothing",
                     STR_ARG(f ? f->what : STR("")), STR_ARG(f ? f->cure : STR("")));
        }
        host_done(&h);
    }
}

/* Whatever is not well says what to do. */
static void test_nothing_is_wrong_without_a_cure(void **state)
{
    struct host h;
    host_init(&h);
    doctor_host(&h.d, "/nowhere/at/all");
    assert_true(h.d.n >= 6);
    for (size_t i = 0; i < h.d.n; i++) {
        assert_int_equal(h.d.v[i].state != DOCTOR_OK, str_is_set(h.d.v[i].cure));
    }
    host_done(&h);
}

static void test_only_denials_of_ours_count(void **state)
{
    assert_int_equal(doctor_denials(STR("")), 0);
    assert_int_equal(doctor_denials(STR("a apparmor=\"DENIED\" comm=\"firefox\"\n")), 0);
    assert_int_equal(doctor_denials(STR("apparmor=\"ALLOWED\" comm=\"spx-vpcd\"\n")), 0);
    assert_int_equal(doctor_denials(STR("x apparmor=\"DENIED\" comm=\"qemu-system-x86\"\n"
                                        "avc:  denied  { read } for comm=\"spx-state\"\n")),
                     2);
}

static void test_firewalls_that_drop_are_found(void **state)
{
    static const struct {
        const char *text, *found;
    } cases[] = {
        {"", NULL},
        {"table inet other {\n\tchain c {\n\t\ttype filter hook forward priority 5; policy "
         "accept;\n\t}\n}\n",
         NULL},
        {"table ip filter {\n\tchain INPUT {\n\t\ttype filter hook input priority filter; "
         "policy "
         "drop;\n\t}\n\tchain FORWARD {\n\t\ttype filter hook forward priority filter; policy "
         "drop;\n\t}\n}\n",
         "ip filter FORWARD"},
        {"table inet spx {\n\tchain f {\n\t\ttype filter hook forward priority 0; policy "
         "drop;\n\t}\n}\n",
         NULL},
    };
    AUTO(arena_freep) struct arena *a = arena_new(1u << 20);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct str s = doctor_forward_drop(a, str_c(cases[i].text));
        assert_int_equal(str_is_set(s), cases[i].found != NULL);
        assert_true(!cases[i].found || str_eqc(s, cases[i].found));
    }
}

static const char tcp[] = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when "
                          "retrnsmt   uid  timeout "
                          "inode\n"
                          "   0: 0100007F:270E 00000000:0000 0A 00000000:00000000 00:00000000 "
                          "00000000     0        0 "
                          "4711 1 0000000000000000 100 0 0 10 0\n"
                          "   1: 0100007F:270F 0100007F:9999 01 00000000:00000000 00:00000000 "
                          "00000000     0        0 "
                          "4712 1 0000000000000000 100 0 0 10 0\n";

static void test_listeners_are_found_with_their_process(void **state)
{
    assert_int_equal(ports_inode(str_c(tcp), 9998), 4711);
    assert_int_equal(ports_inode(str_c(tcp), 9999), 0); /* a connection, nobody listens */
    assert_int_equal(ports_inode(STR_NONE, 1), 0);
    assert_int_equal(ports_inode(STR("x\n\n  \n"), 1), 0);
    struct host h;
    char from[PATH_MAX];
    static const char *services[] = {"awsgw"};
    const struct config c = {
        .node = "n1", .awsgw_port = 9998, .services = services, .n_services = 1};
    struct port_user u[4];
    host_init(&h);
    put(&h, "/proc/net/tcp", tcp);
    assert_int_equal(ports_used(h.d.a, h.dir.path, &c, u), 0); /* no /proc there */
    (void)snprintf(from, sizeof(from), "%s/proc", h.dir.path);
    assert_int_equal(ports_used(h.d.a, from, &c, u), 1);
    assert_int_equal(u[0].pid, 0);
    put(&h, "/proc/123/comm", "nginx\n");
    put(&h, "/proc/123/fd/x", "");
    (void)snprintf(from, sizeof(from), "%s/proc/123/fd/5", h.dir.path);
    assert_int_equal(symlink("socket:[4711]", from), 0);
    (void)snprintf(from, sizeof(from), "%s/proc", h.dir.path);
    assert_int_equal(ports_used(h.d.a, from, &c, u), 1);
    assert_int_equal(u[0].pid, 123);
    assert_string_equal(u[0].name, "nginx");
    assert_string_equal(u[0].key, "nodes.n1.awsgw.port");
    assert_false(u[0].is_ours);
    put(&h, "/proc/123/comm", "spx-awsgw\n");
    assert_int_equal(ports_used(h.d.a, from, &c, u), 1);
    assert_true(u[0].is_ours);
    host_done(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_a_host_lacks_is_named_with_its_cure),
        cmocka_unit_test(test_nothing_is_wrong_without_a_cure),
        cmocka_unit_test(test_only_denials_of_ours_count),
        cmocka_unit_test(test_firewalls_that_drop_are_found),
        cmocka_unit_test(test_listeners_are_found_with_their_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
