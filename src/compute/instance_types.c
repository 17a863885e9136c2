#include "compute/instance_types.h"
#include "base/num.h"
#include <stdio.h>

#define MAX_TYPES 256u

struct generation {
    const char *vendor;
    unsigned family, model_min, model_max;
    const char *name;
};

/* CPUID family and model ranges of server processors (public model numbers). */
static const struct generation x86_generations[] = {
    {"GenuineIntel", 6, 0x3f, 0x3f, "4"},     /* Haswell */
    {"GenuineIntel", 6, 0x4f, 0x4f, "4"},     /* Broadwell */
    {"GenuineIntel", 6, 0x56, 0x56, "4"},     /* Broadwell-D */
    {"GenuineIntel", 6, 0x55, 0x55, "5"},     /* Skylake, Cascade Lake, Cooper Lake */
    {"GenuineIntel", 6, 0x6a, 0x6c, "6i"},    /* Ice Lake */
    {"GenuineIntel", 6, 0x8f, 0x8f, "7i"},    /* Sapphire Rapids */
    {"GenuineIntel", 6, 0xcf, 0xcf, "7i"},    /* Emerald Rapids */
    {"GenuineIntel", 6, 0xad, 0xae, "8i"},    /* Granite Rapids */
    {"AuthenticAMD", 0x17, 0x00, 0x2f, "5a"}, /* Zen, Zen+ */
    {"AuthenticAMD", 0x17, 0x30, 0xff, "5a"}, /* Zen 2 */
    {"AuthenticAMD", 0x19, 0x00, 0x0f, "6a"}, /* Zen 3 */
    {"AuthenticAMD", 0x19, 0x20, 0x5f, "6a"},
    {"AuthenticAMD", 0x19, 0x10, 0x1f, "7a"}, /* Zen 4 */
    {"AuthenticAMD", 0x19, 0x60, 0xaf, "7a"},
    {"AuthenticAMD", 0x1a, 0x00, 0xff, "8a"}, /* Zen 5 */
};

struct arm_part {
    unsigned implementer, part;
    const char *name;
};
static const struct arm_part arm_generations[] = {
    {0x41, 0xd0c, "6g"}, /* Neoverse N1 */
    {0x41, 0xd40, "7g"}, /* Neoverse V1 */
    {0x41, 0xd4f, "8g"}, /* Neoverse V2 */
    {0x41, 0xd49, "7g"}, /* Neoverse N2 */
    {0xc0, 0xac3, "6g"}, /* Ampere-1 */
    {0xc0, 0xac4, "7g"},
};

/* The other maker's names of about the same age. */
static const char *const siblings[][2] = {
    {"5", "5a"}, {"6i", "6a"}, {"7i", "7a"}, {"8i", "8a"}};

struct size {
    const char *name;
    unsigned n_vcpus;
    unsigned mem_c, mem_m, mem_r; /* MiB; 0 = no such size in that family */
};
static const struct size sizes[] = {
    {"medium", 1, 2048, 4096, 8192}, /* arm64 families only */
    {"large", 2, 4096, 8192, 16384},
    {"xlarge", 4, 8192, 16384, 32768},
    {"2xlarge", 8, 16384, 32768, 65536},
    {"4xlarge", 16, 32768, 65536, 131072},
    {"8xlarge", 32, 65536, 131072, 262144},
    {"12xlarge", 48, 98304, 196608, 393216},
    {"16xlarge", 64, 131072, 262144, 524288},
    {"24xlarge", 96, 196608, 393216, 786432},
    {"32xlarge", 128, 262144, 524288, 1048576},
    {"48xlarge", 192, 393216, 786432, 1572864},
};

struct fixed_type {
    const char *name;
    unsigned n_vcpus, memory_mib;
};
static const struct fixed_type burstable[] = {
    {"nano", 2, 512},   {"micro", 2, 1024},   {"small", 2, 2048},    {"medium", 2, 4096},
    {"large", 2, 8192}, {"xlarge", 4, 16384}, {"2xlarge", 8, 32768},
};
/* Those of portable boxes: offered everywhere, as what runs there shall run here. */
static const struct fixed_type portable[] = {
    {"snc1.micro", 1, 1024},     {"snc1.small", 1, 2048},    {"snc1.medium", 2, 4096},
    {"sbe1.small", 1, 1024},     {"sbe1.medium", 1, 2048},   {"sbe1.large", 2, 4096},
    {"sbe1.xlarge", 4, 8192},    {"sbe1.2xlarge", 8, 16384}, {"sbe1.4xlarge", 16, 32768},
    {"sbe1.6xlarge", 24, 32768},
};

static bool field_of(struct str line, const char *name, struct str *ret)
{
    struct str key = str_trim(str_cut(line, ':'));
    if (!str_eqc(key, name)) {
        return false;
    }
    *ret = str_trim(str_skip(line, (size_t)str_find(line, ':', 0) + 1));
    return true;
}

static void read_num(struct str s, unsigned *ret)
{
    uint64_t v = 0;
    int r = str_has_prefixc(s, "0x") ? num_hex_u64(str_skip(s, 2), UINT32_MAX, &v)
                                     : num_u64(s, UINT32_MAX, &v);
    if (r == 0) {
        *ret = (unsigned)v;
    }
}

void cpu_id_parse(struct str cpuinfo, const char *arch, struct cpu_id *ret,
                  struct str *ret_model_name)
{
    struct cpu_id c = {.arch = arch, .vendor = ""};
    struct str line, v;
    *ret_model_name = STR("");
    while (cpuinfo.n && str_next(&cpuinfo, '\n', &line)) {
        if (str_is_empty(str_trim(line))) {
            break; /* the next processor */
        }
        if (str_find(line, ':', 0) < 0) {
            continue;
        }
        if (field_of(line, "vendor_id", &v)) {
            c.vendor = str_eqc(v, "GenuineIntel")   ? "GenuineIntel"
                       : str_eqc(v, "AuthenticAMD") ? "AuthenticAMD"
                                                    : "";
        } else if (field_of(line, "cpu family", &v)) {
            read_num(v, &c.family);
        } else if (field_of(line, "model", &v)) {
            read_num(v, &c.model);
        } else if (field_of(line, "CPU implementer", &v)) {
            read_num(v, &c.implementer);
        } else if (field_of(line, "CPU part", &v)) {
            read_num(v, &c.part);
        } else if (field_of(line, "model name", &v)) {
            *ret_model_name = v;
        }
    }
    *ret = c;
}

static bool is_arm(const struct cpu_id *c)
{
    return strcmp(c->arch, "arm64") == 0;
}

const char *cpu_generation(const struct cpu_id *c)
{
    if (is_arm(c)) {
        for (size_t i = 0; i < ARRAY_LEN(arm_generations); i++) {
            if (arm_generations[i].implementer == c->implementer &&
                arm_generations[i].part == c->part) {
                return arm_generations[i].name;
            }
        }
        return "";
    }
    for (size_t i = 0; i < ARRAY_LEN(x86_generations); i++) {
        const struct generation *g = &x86_generations[i];
        if (strcmp(g->vendor, c->vendor) == 0 && g->family == c->family &&
            c->model >= g->model_min && c->model <= g->model_max) {
            return g->name;
        }
    }
    return "";
}

struct out {
    struct arena *a;
    struct instance_type_list *list;
    uint64_t n_vcpus, memory_mib;
};

static void add(struct out *o, struct str name, unsigned n_vcpus, unsigned memory_mib,
                bool is_burstable)
{
    /* A burstable type may have more vCPUs than the host: that is what bursting is for; not
     * more memory, ever. */
    bool has_room =
        memory_mib && memory_mib <= o->memory_mib && (is_burstable || n_vcpus <= o->n_vcpus);
    if (!has_room || o->list->n == MAX_TYPES) {
        return;
    }
    o->list->v[o->list->n++] = (struct instance_type){.name = name,
                                                      .n_vcpus = n_vcpus,
                                                      .memory_mib = memory_mib,
                                                      .is_burstable = is_burstable};
}

static void add_burstable(struct out *o, const char *family)
{
    for (size_t i = 0; i < ARRAY_LEN(burstable); i++) {
        const struct fixed_type *t = &burstable[i];
        add(o, arena_fmt(o->a, "%s.%s", family, t->name), t->n_vcpus, t->memory_mib, true);
    }
}

static void add_families(struct out *o, const char *generation, bool has_medium)
{
    if (!*generation) {
        return;
    }
    for (const char *f = "cmr"; *f; f++) {
        for (size_t i = has_medium ? 0 : 1; i < ARRAY_LEN(sizes); i++) {
            const struct size *s = &sizes[i];
            unsigned mem = *f == 'c' ? s->mem_c : *f == 'm' ? s->mem_m : s->mem_r;
            add(o, arena_fmt(o->a, "%c%s.%s", *f, generation, s->name), s->n_vcpus, mem, false);
        }
    }
}

static const char *sibling_of(const char *generation)
{
    for (size_t i = 0; i < ARRAY_LEN(siblings); i++) {
        for (unsigned k = 0; k < 2; k++) {
            if (strcmp(siblings[i][k], generation) == 0) {
                return siblings[i][1 - k];
            }
        }
    }
    return "";
}

void instance_types_for(struct arena *a, const struct cpu_id *c, uint64_t n_vcpus,
                        uint64_t memory_mib, struct instance_type_list *ret)
{
    ret->n = 0;
    ret->v = arena_xalloc(a, MAX_TYPES * sizeof(*ret->v));
    struct out o = {.a = a, .list = ret, .n_vcpus = n_vcpus, .memory_mib = memory_mib};
    const char *generation = cpu_generation(c);
    if (is_arm(c)) {
        add_burstable(&o, "t4g");
        add_families(&o, generation, true);
    } else {
        add_burstable(&o, "t3");
        add_burstable(&o, "t3a");
        add_families(&o, generation, false);
        add_families(&o, sibling_of(generation), false);
    }
    for (size_t i = 0; i < ARRAY_LEN(portable); i++) {
        add(&o, str_c(portable[i].name), portable[i].n_vcpus, portable[i].memory_mib, false);
    }
}
