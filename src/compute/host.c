#include "compute/host.h"
#include "base/file.h"
#include "base/num.h"
#include "base/time.h"
#include "compute/instance_types.h"
#include <errno.h>
#include <sched.h>
#include <stdio.h>

#define PROC_MAX (4u << 20)
#define PROBE_NS (UINT64_C(5) * NS_PER_S)

#if defined(__x86_64__)
#define HOST_ARCH "x86_64"
#elif defined(__aarch64__)
#define HOST_ARCH "arm64"
#else
#error "name the architecture of this processor as EC2 does"
#endif

/* A small host gives all its CPUs (they are shared in time); a large one keeps an eighth of
 * them, two at most, free. */
uint64_t host_usable_vcpus(uint64_t n_cpus)
{
    return n_cpus - MIN(n_cpus / 8, UINT64_C(2));
}

/* Memory is not shared: 512 MiB or a tenth, what is more, stays with the host and its services. */
uint64_t host_usable_memory_mib(uint64_t memory_mib)
{
    uint64_t kept = MAX(UINT64_C(512), memory_mib / 10);
    return memory_mib > kept ? memory_mib - kept : 0;
}

int host_meminfo_mib(struct str meminfo, uint64_t *ret)
{
    struct str line;
    while (meminfo.n && str_next(&meminfo, '\n', &line)) {
        if (!str_has_prefixc(line, "MemTotal:")) {
            continue;
        }
        struct str v = str_cut(str_trim(str_skip(line, sizeof("MemTotal:") - 1)), ' ');
        uint64_t kib = 0;
        int r = num_u64(v, UINT64_MAX, &kib);
        if (r == 0) {
            *ret = kib / 1024;
        }
        return r;
    }
    return -EINVAL;
}

static int read_text(struct arena *a, const char *path, struct str *ret, struct err *err)
{
    AUTO_FREE char *text = NULL;
    size_t n = 0;
    int r = file_read(path, PROC_MAX, &text, &n, err);
    if (r < 0) {
        return r;
    }
    *ret = arena_str_dup(a, str_trim(str_n(text, n)));
    return str_is_set(*ret) ? 0 : fail(err, -ENOMEM, "ReadFailed", "%s does not fit", path);
}

static uint64_t count_cpus(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) < 0) {
        return 1;
    }
    return (uint64_t)CPU_COUNT(&set);
}

static const char *find_firmware(void)
{
    static const char *const files[] = {
#if defined(__x86_64__)
        "/usr/share/OVMF/OVMF_CODE_4M.fd",
        "/usr/share/OVMF/OVMF_CODE.fd",
#else
        "/usr/share/AAVMF/AAVMF_CODE.no-secboot.fd",
        "/usr/share/AAVMF/AAVMF_CODE.fd",
#endif
    };
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        if (access(files[i], R_OK) == 0) {
            return files[i];
        }
    }
    return NULL;
}

static void look_at_kvm(const struct config *cfg, const char *accel, const char *qemu_path,
                        struct host *h)
{
    if (strcmp(accel, "tcg") == 0) {
        h->is_kvm = false;
        (void)snprintf(h->kvm.reason, sizeof(h->kvm.reason), "the service was told to emulate");
        return;
    }
    const struct kvm_probe_opts o = {
        .run_dir = cfg->run_dir,
        .boot_id = h->boot_id,
        .arch = h->arch,
        .qemu_path = qemu_path,
        .device = "/dev/kvm",
        .uid = cfg->uid_base ? cfg->uid_base + CONFIG_UID_GUESTS : 0,
        .timeout_ns = PROBE_NS,
    };
    kvm_probe(&o, &h->kvm);
    h->is_kvm = h->kvm.is_usable;
}

int host_look(struct arena *a, const struct config *cfg, const char *accel,
              const char *qemu_path, struct host *ret, struct err *err)
{
    struct host h = {.arch = HOST_ARCH, .firmware = find_firmware()};
    struct str cpuinfo = STR_NONE, meminfo = STR_NONE, boot = STR_NONE, model = STR_NONE;
    struct cpu_id cpu;
    int r = read_text(a, "/proc/cpuinfo", &cpuinfo, err);
    if (r == 0) {
        r = read_text(a, "/proc/meminfo", &meminfo, err);
    }
    if (r == 0) {
        r = read_text(a, "/proc/sys/kernel/random/boot_id", &boot, err);
    }
    if (r < 0) {
        return r;
    }
    h.boot_id = boot.p;
    cpu_id_parse(cpuinfo, h.arch, &cpu, &model);
    struct node_facts *f = &h.facts;
    if (host_meminfo_mib(meminfo, &f->memory_mib) < 0) {
        return fail(err, -EINVAL, "ReadFailed",
                    "/proc/meminfo does not say how much memory there is");
    }
    look_at_kvm(cfg, accel, qemu_path, &h);
    f->name = str_c(cfg->node);
    f->ip = str_c(cfg->host);
    f->region = str_c(cfg->region);
    f->az = str_c(cfg->az);
    f->arch = str_c(h.arch);
    f->cpu_vendor = str_c(cpu.vendor);
    f->cpu_model = model;
    f->n_cpus = count_cpus();
    f->usable_vcpus = host_usable_vcpus(f->n_cpus);
    f->usable_memory_mib = host_usable_memory_mib(f->memory_mib);
    f->accel = str_c(h.is_kvm ? "kvm" : "tcg");
    f->accel_reason = arena_str_dup(a, str_c(h.kvm.reason));
    f->boot_id = boot;
    f->changed_ns = time_wall_ns();
    instance_types_for(a, &cpu, f->usable_vcpus, f->usable_memory_mib, &f->types);
    *ret = h;
    return 0;
}
