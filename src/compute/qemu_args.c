#include "compute/qemu_args.h"
#include "base/num.h"
#include "codec/json.h"
#include <assert.h>
#include <errno.h>
#include <stdio.h>

#define MAX_ARGS        320u
#define PORTS_DEV       2u /* first PCI device number of the root ports, eight functions each */
#define PORTS_PER_FN    8u
#define N_PORTS         (GM_N_DISKS + GM_N_NICS)
#define NBD_RECONNECT_S 3600u /* how long requests of a guest wait for the block service */
#define NBD_OPEN_S      20u
#define TCG_CODE_MIB    128u

struct machine {
    const char *arch, *program, *kvm_machine, *tcg_machine, *kvm_cpu, *tcg_cpu;
    bool has_bios; /* can start without UEFI */
};

/* TCG: "max" so that guests built for x86-64-v3 run; without 5-level paging, whose walks only
 * cost time. */
static const struct machine machines[] = {
    {"x86_64", "qemu-system-x86_64", "q35,vmport=off,hpet=off", "q35,vmport=off",
     "host,migratable=off", "max,la57=off", true},
    {"arm64", "qemu-system-aarch64", "virt,gic-version=max", "virt,gic-version=max", "host",
     "max", false},
};

static const struct machine *machine_of(const char *arch)
{
    for (size_t i = 0; i < ARRAY_LEN(machines); i++) {
        if (arch && strcmp(machines[i].arch, arch) == 0) {
            return &machines[i];
        }
    }
    return NULL;
}

const char *qemu_program(const char *arch)
{
    const struct machine *m = machine_of(arch);
    return m ? m->program : NULL;
}

void qemu_machine(const char *arch, bool is_kvm, char *ret, size_t size, const char **ret_cpu)
{
    const struct machine *m = machine_of(arch);
    assert(m);
    (void)snprintf(ret, size, "%s%s", is_kvm ? m->kvm_machine : m->tcg_machine,
                   is_kvm ? ",accel=kvm" : "");
    *ret_cpu = is_kvm ? m->kvm_cpu : m->tcg_cpu;
}

struct args {
    struct arena *a;
    const char **v;
    size_t n;
    bool is_full;
};

static void add(struct args *x, struct str s)
{
    if (!str_is_set(s) || x->n + 1 >= MAX_ARGS) {
        x->is_full = true;
        return;
    }
    x->v[x->n++] = s.p;
}

#define ARG(x, ...)                               \
    do {                                          \
        add((x), arena_fmt((x)->a, __VA_ARGS__)); \
    } while (0)

/* "-option", "{json}" */
static void add_json(struct args *x, const char *option, struct buf *json)
{
    add(x, str_c(option));
    add(x, buf_ok(json) ? arena_str_dup(x->a, buf_str(json)) : STR_NONE);
    buf_clear(json);
}

size_t qemu_disk_queues(uint64_t n_vcpus)
{
    return (size_t)MIN(MAX(n_vcpus, UINT64_C(1)), (uint64_t)QEMU_MAX_DISK_QUEUES);
}

void qemu_disk_label(char letter, unsigned slot, const char *volume_id,
                     char ret[QEMU_LABEL_MAX])
{
    (void)snprintf(ret, QEMU_LABEL_MAX, "%c%u.%s", letter, slot, volume_id);
}

bool qemu_disk_of_label(struct str label, char *ret_letter, unsigned *ret_slot,
                        char ret_id[GM_NAME_MAX])
{
    ptrdiff_t dot = str_find(label, '.', 0);
    uint64_t slot = 0;
    if (dot < 2 || !strchr("cnm", label.p[0]) ||
        num_u64(str_n(label.p + 1, (size_t)dot - 1), GM_N_DISKS - 1, &slot) < 0) {
        return false;
    }
    struct str id = str_skip(label, (size_t)dot + 1);
    if (!str_has_prefixc(id, "vol-") || id.n >= GM_NAME_MAX) {
        return false;
    }
    for (size_t i = 4; i < id.n; i++) {
        bool is_hex = (id.p[i] >= '0' && id.p[i] <= '9') || (id.p[i] >= 'a' && id.p[i] <= 'f');
        if (!is_hex) {
            return false;
        }
    }
    *ret_letter = label.p[0];
    *ret_slot = (unsigned)slot;
    (void)snprintf(ret_id, GM_NAME_MAX, "%.*s", STR_ARG(id));
    return true;
}

void qemu_disk_chardev_json(struct buf *out, unsigned slot, const char *volume_id,
                            const char *path)
{
    char id[QEMU_LABEL_MAX];
    struct jw w;
    qemu_disk_label('c', slot, volume_id, id);
    jw_init(&w, out);
    jw_obj(&w, NULL);
    jw_cstr(&w, "id", id);
    jw_obj(&w, "backend");
    jw_cstr(&w, "type", "socket");
    jw_obj(&w, "data");
    jw_obj(&w, "addr");
    jw_cstr(&w, "type", "unix");
    jw_obj(&w, "data");
    jw_cstr(&w, "path", path);
    jw_obj_end(&w);
    jw_obj_end(&w);
    jw_bool(&w, "server", false);
    /* In whole seconds: how long a guest may wait for a block service that was killed. */
    jw_u64(&w, "reconnect", 1);
    jw_obj_end(&w);
    jw_obj_end(&w);
    jw_obj_end(&w);
}

void qemu_disk_nbd_json(struct buf *out, char letter, unsigned slot, const char *volume_id,
                        const char *path)
{
    char name[QEMU_LABEL_MAX];
    struct jw w;
    qemu_disk_label(letter, slot, volume_id, name);
    jw_init(&w, out);
    jw_obj(&w, NULL);
    jw_cstr(&w, "driver", "nbd");
    jw_cstr(&w, "node-name", name);
    jw_obj(&w, "server");
    jw_cstr(&w, "type", "unix");
    jw_cstr(&w, "path", path);
    jw_obj_end(&w);
    jw_cstr(&w, "export", volume_id);
    /* Requests wait for a block service that was killed, and are sent again. */
    jw_u64(&w, "reconnect-delay", NBD_RECONNECT_S);
    jw_u64(&w, "open-timeout", NBD_OPEN_S);
    jw_cstr(&w, "discard", "unmap");
    jw_bool(&w, "auto-read-only", false);
    jw_obj_end(&w);
}

void qemu_disk_node_json(struct buf *out, unsigned slot, const char *child)
{
    char text[64];
    struct jw w;
    jw_init(&w, out);
    jw_obj(&w, NULL);
    jw_cstr(&w, "driver", "raw");
    (void)snprintf(text, sizeof(text), "d%u", slot);
    jw_cstr(&w, "node-name", text);
    jw_cstr(&w, "file", child);
    jw_cstr(&w, "discard", "unmap");
    jw_obj_end(&w);
}

void qemu_disk_dead_json(struct buf *out, unsigned slot, uint64_t size)
{
    char text[64];
    struct jw w;
    jw_init(&w, out);
    jw_obj(&w, NULL);
    jw_cstr(&w, "driver", "blkdebug");
    (void)snprintf(text, sizeof(text), "x%u", slot);
    jw_cstr(&w, "node-name", text);
    jw_obj(&w, "image");
    jw_cstr(&w, "driver", "null-co");
    jw_u64(&w, "size", size);
    jw_bool(&w, "read-zeroes", true);
    jw_obj_end(&w);
    jw_arr(&w, "inject-error");
    jw_obj(&w, NULL);
    jw_cstr(&w, "event", "none");
    jw_u64(&w, "errno", EIO);
    jw_bool(&w, "once", false);
    jw_bool(&w, "immediately", true);
    jw_obj_end(&w);
    jw_arr_end(&w);
    jw_obj_end(&w);
}

/* "vol-0123..." -> "vol0123...": exactly the 20 bytes that a virtio disk's serial can have. */
static void serial_of(const char *volume_id, char ret[GM_NAME_MAX])
{
    size_t n = 0;
    for (const char *c = volume_id; *c && n + 1 < GM_NAME_MAX; c++) {
        if (*c != '-') {
            ret[n++] = *c;
        }
    }
    ret[n] = '\0';
}

void qemu_disk_device_json(struct buf *out, unsigned slot, const char *volume_id, bool is_nbd,
                           size_t n_queues, bool is_root)
{
    char text[QEMU_LABEL_MAX];
    struct jw w;
    jw_init(&w, out);
    jw_obj(&w, NULL);
    jw_cstr(&w, "driver", is_nbd ? "virtio-blk-pci" : "vhost-user-blk-pci");
    (void)snprintf(text, sizeof(text), "disk%u", slot);
    jw_cstr(&w, "id", text);
    (void)snprintf(text, sizeof(text), "rp%u", slot);
    jw_cstr(&w, "bus", text);
    if (is_nbd) {
        char serial[GM_NAME_MAX];
        (void)snprintf(text, sizeof(text), "d%u", slot);
        jw_cstr(&w, "drive", text);
        serial_of(volume_id, serial);
        jw_cstr(&w, "serial", serial);
        /* The write cache that the guest sees is real, and errors are the guest's to see: whether
         * a full disk waits is decided by the block service. */
        jw_cstr(&w, "write-cache", "on");
        jw_cstr(&w, "werror", "report");
        jw_cstr(&w, "rerror", "report");
    } else {
        qemu_disk_label('c', slot, volume_id, text);
        jw_cstr(&w, "chardev", text);
    }
    jw_u64(&w, "num-queues", n_queues);
    if (is_root) {
        jw_u64(&w, "bootindex", 0);
    }
    jw_obj_end(&w);
}

void qemu_uuid(const char *instance_id, char ret[QEMU_UUID_SIZE])
{
    /* 17 digits of the id, then 12 digits of a hash of it (FNV-1a): the id can be read from the
     * UUID. */
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    char digits[33] = "ec2";
    size_t n = 3;
    for (const char *c = instance_id; *c; c++) {
        hash = (hash ^ (uint8_t)*c) * UINT64_C(0x100000001b3);
        bool is_hex = (*c >= '0' && *c <= '9') || (*c >= 'a' && *c <= 'f');
        if (is_hex && n < 20) {
            digits[n++] = *c;
        }
    }
    while (n < 32) {
        digits[n++] = "0123456789abcdef"[hash & 15];
        hash = (hash >> 4) | (hash << 60);
    }
    (void)snprintf(ret, QEMU_UUID_SIZE, "%.8s-%.4s-%.4s-%.4s-%.12s", digits, digits + 8,
                   digits + 12, digits + 16, digits + 20);
}

static void add_machine(struct args *x, const struct qemu_launch *l, const struct machine *m)
{
    ARG(x, "%s", m->program);
    ARG(x, "-name");
    ARG(x, "guest=%s,debug-threads=on", l->id);
    ARG(x, "-nodefaults");
    ARG(x, "-no-user-config");
    ARG(x, "-display");
    ARG(x, "none");
    ARG(x, "-sandbox");
    ARG(x, "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny");
    ARG(x, "-pidfile");
    ARG(x, "%s", l->pid_file);
    /* Nothing runs before the monitor listens, and the monitor decides what a shutdown means.
     */
    ARG(x, "-S");
    ARG(x, "-no-shutdown");
    ARG(x, "-action");
    ARG(x, "panic=none");
    char machine[128];
    const char *cpu = "";
    qemu_machine(m->arch, l->is_kvm, machine, sizeof(machine), &cpu);
    ARG(x, "-machine");
    ARG(x, "%s,memory-backend=mem%s", machine, l->is_uefi ? ",pflash0=code,pflash1=vars" : "");
    if (!l->is_kvm) { /* translated code takes up to 1 GiB beside the guest's memory otherwise */
        ARG(x, "-accel");
        ARG(x, "tcg,tb-size=%u", TCG_CODE_MIB);
    }
    ARG(x, "-cpu");
    ARG(x, "%s", cpu);
    ARG(x, "-smp");
    ARG(x, "%llu", (unsigned long long)l->n_vcpus);
    ARG(x, "-m");
    ARG(x, "size=%lluM", (unsigned long long)l->memory_mib);
    ARG(x, "-object");
    ARG(x, "memory-backend-memfd,id=mem,size=%lluM,share=on",
        (unsigned long long)l->memory_mib);
    ARG(x, "-rtc");
    ARG(x, "base=utc");
    ARG(x, "-boot");
    ARG(x, "strict=on");
}

static void add_dmi(struct args *x, const struct qemu_launch *l)
{
    char uuid[QEMU_UUID_SIZE];
    qemu_uuid(l->id, uuid);
    ARG(x, "-uuid");
    ARG(x, "%s", uuid);
    /* cloud-init before 24.1 recognises EC2 only when the serial is the UUID; tools read the
     * instance id from the asset tag of the board, as on AWS. */
    ARG(x, "-smbios");
    ARG(x, "type=0,vendor=Spinifex,version=1.0");
    ARG(x, "-smbios");
    ARG(x, "type=1,manufacturer=Spinifex,product=%s,version=1.0,serial=%s,family=Spinifex EC2",
        l->type, uuid);
    ARG(x, "-smbios");
    ARG(x, "type=2,manufacturer=Spinifex,product=Spinifex,asset=%s", l->id);
    ARG(x, "-smbios");
    ARG(x, "type=3,manufacturer=Spinifex,asset=%s", l->id);
}

static void add_ports(struct args *x)
{
    for (unsigned i = 0; i < N_PORTS; i++) {
        ARG(x, "-device");
        ARG(x,
            "pcie-root-port,id=rp%u,bus=pcie.0,chassis=%u,addr=%x.%u,multifunction=on,io-"
            "reserve=0",
            i, i + 1, PORTS_DEV + i / PORTS_PER_FN, i % PORTS_PER_FN);
    }
}

static void add_disks(struct args *x, const struct qemu_launch *l, struct buf *json)
{
    for (unsigned i = 0; i < GM_N_DISKS; i++) {
        const struct qemu_disk *d = &l->disk[i];
        if (!d->path) {
            continue;
        }
        char name[QEMU_LABEL_MAX];
        if (l->is_kvm) {
            qemu_disk_label('c', i, d->volume_id, name);
            ARG(x, "-chardev");
            ARG(x, "socket,id=%s,path=%s,reconnect=1", name, d->path);
        } else {
            qemu_disk_label('n', i, d->volume_id, name);
            qemu_disk_nbd_json(json, 'n', i, d->volume_id, d->path);
            add_json(x, "-blockdev", json);
            qemu_disk_node_json(json, i, name);
            add_json(x, "-blockdev", json);
        }
        qemu_disk_device_json(json, i, d->volume_id, !l->is_kvm, qemu_disk_queues(l->n_vcpus),
                              d->is_root);
        add_json(x, "-device", json);
    }
}

static void add_nics(struct args *x, const struct qemu_launch *l)
{
    for (unsigned i = 0; i < GM_N_NICS; i++) {
        const struct qemu_nic *n = &l->nic[i];
        if (!n->n_queues) {
            continue;
        }
        AUTO_BUF fds;
        buf_init(&fds, 256);
        for (size_t q = 0; q < n->n_queues; q++) {
            buf_fmt(&fds, "%s%d", q ? ":" : "", n->fds[q]);
        }
        ARG(x, "-netdev");
        ARG(x, "tap,id=net%u,%s=%s", i, n->n_queues > 1 ? "fds" : "fd", buf_cstr(&fds));
        /* One vector per queue and direction, one for the control queue, one for configuration.
         */
        char mq[48] = "";
        if (n->n_queues > 1) {
            (void)snprintf(mq, sizeof(mq), ",mq=on,vectors=%zu", 2 * n->n_queues + 2);
        }
        ARG(x, "-device");
        ARG(x, "virtio-net-pci,id=nic%u,bus=rp%u,netdev=net%u,mac=%s,romfile=,host_mtu=%llu%s",
            i, GM_N_DISKS + i, i, n->mac, (unsigned long long)n->mtu, mq);
    }
}

static void add_uefi(struct args *x, const struct qemu_launch *l)
{
    ARG(x, "-blockdev");
    ARG(x,
        "{\"driver\":\"file\",\"node-name\":\"code\",\"filename\":\"%s\",\"read-only\":true}",
        l->firmware);
    ARG(x, "-add-fd");
    ARG(x, "fd=%d,set=%u", l->vars_fd, QEMU_VARS_SET);
    ARG(x, "-blockdev");
    ARG(x,
        "{\"driver\":\"file\",\"node-name\":\"vars\",\"filename\":\"/dev/fdset/"
        "%u\",\"locking\":\"off\"}",
        QEMU_VARS_SET);
}

static bool is_plain(const char *s)
{
    return s && *s &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.:/_+") ==
               strlen(s);
}

static int check(const struct qemu_launch *l, const struct machine *m, struct err *err)
{
    if (!m) {
        return fail(err, -EINVAL, "BadLaunch", "no machine for the architecture \"%s\"",
                    l->arch);
    }
    if (!l->is_uefi && !m->has_bios) {
        return fail(err, -EINVAL, "BadLaunch", "%s guests start by UEFI only", l->arch);
    }
    /* Commas and quotes would become options of QEMU. */
    if (!is_plain(l->id) || !is_plain(l->type) || !is_plain(l->pid_file) ||
        (l->is_uefi && !is_plain(l->firmware))) {
        return fail(err, -EINVAL, "BadLaunch",
                    "a name holds bytes that a command line must not have");
    }
    if (l->n_vcpus < 1 || l->n_vcpus > 255 || l->memory_mib < 16) {
        return fail(err, -EINVAL, "BadLaunch", "%llu vCPUs and %llu MiB are no machine",
                    (unsigned long long)l->n_vcpus, (unsigned long long)l->memory_mib);
    }
    for (unsigned i = 0; i < GM_N_DISKS; i++) {
        const struct qemu_disk *d = &l->disk[i];
        unsigned slot = 0;
        char letter = 0, label[QEMU_LABEL_MAX], id[GM_NAME_MAX];
        if (!d->path) {
            continue;
        }
        qemu_disk_label('c', i, d->volume_id ? d->volume_id : "", label);
        if (!is_plain(d->path) || !qemu_disk_of_label(str_c(label), &letter, &slot, id) ||
            strcmp(id, d->volume_id) != 0) {
            return fail(err, -EINVAL, "BadLaunch", "the volume in slot %u has no proper id", i);
        }
    }
    for (unsigned i = 0; i < GM_N_NICS; i++) {
        const struct qemu_nic *n = &l->nic[i];
        if (n->n_queues > QEMU_MAX_QUEUES || (n->n_queues && !is_plain(n->mac))) {
            return fail(err, -EINVAL, "BadLaunch", "network interface %u is not one", i);
        }
    }
    return 0;
}

int qemu_args(struct arena *a, const struct qemu_launch *l, const char *const **ret_argv,
              struct err *err)
{
    const struct machine *m = machine_of(l->arch);
    int r = check(l, m, err);
    if (r < 0) {
        return r;
    }
    struct args x = {.a = a, .v = arena_array(a, MAX_ARGS, sizeof(char *))};
    AUTO_BUF json;
    buf_init(&json, 4096);
    if (!x.v) {
        return fail(err, -ENOMEM, "BadLaunch", "no room for a command line");
    }
    add_machine(&x, l, m);
    add_dmi(&x, l);
    ARG(&x, "-chardev");
    ARG(&x, "socket,id=qmp,fd=%d,server=on,wait=off", l->qmp_fd);
    ARG(&x, "-mon");
    ARG(&x, "chardev=qmp,mode=control");
    ARG(&x, "-chardev");
    ARG(&x, "socket,id=con,fd=%d,server=on,wait=off", l->console_fd);
    ARG(&x, "-serial");
    ARG(&x, "chardev:con");
    add_ports(&x);
    ARG(&x, "-object");
    ARG(&x, "rng-builtin,id=rng");
    ARG(&x, "-device");
    ARG(&x, "virtio-rng-pci,rng=rng,bus=pcie.0");
    if (strcmp(m->arch, "x86_64") == 0) {
        ARG(&x, "-device");
        ARG(&x, "pvpanic");
        ARG(&x, "-global");
        ARG(&x, "ICH9-LPC.disable_s3=1");
        ARG(&x, "-global");
        ARG(&x, "ICH9-LPC.disable_s4=1");
    }
    if (l->is_uefi) {
        add_uefi(&x, l);
    }
    add_disks(&x, l, &json);
    add_nics(&x, l);
    if (x.is_full) {
        return fail(err, -E2BIG, "BadLaunch", "the command line has more than %u parts",
                    MAX_ARGS);
    }
    x.v[x.n] = NULL;
    *ret_argv = x.v;
    return 0;
}
