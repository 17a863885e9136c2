/* facts_sample.h — facts of one small VPC, for tests and fuzzers.
 * Not here: anything a service uses.
 * Threads:  no state.
 * Memory:   facts_sample() gives.
 * Errors:   aborts. */
#pragma once
#include "vpcd/facts.h"

#define SAMPLE_KEY "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define SAMPLE_VPC                                                                     \
    "{\"v\":1,\"id\":\"vpc-0123456789abcdef0\",\"account\":\"111122223333\",\"cidr\":" \
    "\"172.31.0.0/16\",\"region\":\"ap-southeast-2\",\"domain\":"                      \
    "\"ap-southeast-2.compute.internal\",\"key\":\"" SAMPLE_KEY                        \
    "\",\"pools\":[\"198.51.100.10-198.51.100.250\"],\"mtu\":9001,\"is_dns_support\":true}"
/* 172.31.0.10 with public address 198.51.100.10, on i-0a; 172.31.0.11 on i-0b. */
#define SAMPLE_ENI_A                                                                         \
    "{\"v\":1,\"id\":\"eni-0a\",\"mac\":\"0a:00:00:00:00:0a\",\"ip\":\"172.31.0.10\","       \
    "\"gateway\":"                                                                           \
    "\"172.31.0.1\",\"subnet_id\":\"subnet-0a\",\"subnet_cidr\":\"172.31.0.0/"               \
    "20\",\"private_dns\":"                                                                  \
    "\"ip-172-31-0-10.ap-southeast-2.compute.internal\",\"public_ip\":\"198.51.100.10\","    \
    "\"public_dns\":\"ec2-198-51-100-10.ap-southeast-2.compute.internal\",\"sg_ids\":[\"sg-" \
    "0a\"],"                                                                                 \
    "\"sg_names\":[\"default\"],\"ifindex\":7,\"device_index\":0,\"inst\":{\"id\":\"i-0a\"," \
    "\"image_id\":\"ami-0a\",\"instance_type\":\"t3.micro\",\"reservation_id\":\"r-0a\","    \
    "\"arch\":"                                                                              \
    "\"x86_64\",\"az\":\"ap-southeast-2a\",\"az_id\":\"apse2-az1\",\"launch_ns\":"           \
    "1796050150000000000,\"key_name\":\"me\",\"public_key\":\"ssh-ed25519 AAAA me\","        \
    "\"user_data\":\"aGkK\",\"root_device\":\"/dev/sda1\",\"http_tokens\":\"required\","     \
    "\"http_endpoint\":\"enabled\",\"http_hop_limit\":2,\"is_tags_in_metadata\":true,"       \
    "\"tags\":["                                                                             \
    "{\"key\":\"Name\",\"value\":\"box\"},{\"key\":\"a/b\",\"value\":\"x\"}]}}"
#define SAMPLE_ENI_B                                                                          \
    "{\"v\":1,\"id\":\"eni-0b\",\"mac\":\"0a:00:00:00:00:0b\",\"ip\":\"172.31.0.11\","        \
    "\"gateway\":"                                                                            \
    "\"172.31.0.1\",\"subnet_id\":\"subnet-0a\",\"subnet_cidr\":\"172.31.0.0/"                \
    "20\",\"private_dns\":"                                                                   \
    "\"ip-172-31-0-11.ap-southeast-2.compute.internal\",\"public_ip\":\"\",\"public_dns\":"   \
    "\"\","                                                                                   \
    "\"ifindex\":8,\"inst\":{\"id\":\"i-0b\",\"http_tokens\":\"optional\",\"http_endpoint\":" \
    "\"enabled\",\"http_hop_limit\":1}}"

static inline struct facts *facts_sample(void)
{
    struct facts *f = facts_new();
    if (facts_set_vpc(f, STR(SAMPLE_VPC), NULL) || facts_set_eni(f, STR(SAMPLE_ENI_A), NULL) ||
        facts_set_eni(f, STR(SAMPLE_ENI_B), NULL)) {
        abort();
    }
    return f;
}
