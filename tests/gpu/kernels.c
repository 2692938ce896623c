// Lists the kernels that a process launches. The CUDA driver loads this object into a process whose
// CUDA_INJECTION64_PATH names it, and calls InitializeInjection. CUPTI, at DPACK_CUPTI, then reports every call of
// the driver's API. At its end the process writes "count<tab>kernel" lines to DPACK_KERNELS, or "!<tab>why".
//
// The declarations are those of cupti_callbacks.h, which has kept them since CUDA 5; it need not be installed.
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ENTER = 0, DRIVER_API = 1 };

struct call {
    int site;
    const char *function;
    const void *parameters;
    void *result;
    const char *kernel;  // valid for launches alone
};

struct count {
    char *kernel;
    unsigned long launches;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct count *counts;
static size_t used;
static char trouble[512];

static void add(const char *kernel) {
    size_t at = 0;
    while (at < used && strcmp(counts[at].kernel, kernel) != 0) ++at;
    if (at == used) {
        struct count *larger = realloc(counts, (used + 1) * sizeof *counts);
        char *copy = strdup(kernel);
        if (!larger || !copy) abort();
        counts = larger;
        counts[used++] = (struct count){copy, 0};
    }
    ++counts[at].launches;
}

static void on_call(void *unused, int domain, uint32_t number, const struct call *call) {
    (void)unused;
    (void)number;
    if (domain != DRIVER_API || call->site != ENTER) return;
    const char *kernel = NULL;
    if (!strncmp(call->function, "cuLaunchKernel", 14) || !strncmp(call->function, "cuLaunchCooperative", 19))
        kernel = call->kernel ? call->kernel : "(unnamed)";
    else if (!strncmp(call->function, "cuGraphLaunch", 13))
        kernel = "(a CUDA graph)";
    if (!kernel) return;
    pthread_mutex_lock(&lock);
    add(kernel);
    pthread_mutex_unlock(&lock);
}

static void report(void) {
    const char *path = getenv("DPACK_KERNELS");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file) return;
    pthread_mutex_lock(&lock);
    if (trouble[0]) fprintf(file, "!\t%s\n", trouble);
    for (size_t at = 0; at < used; ++at) fprintf(file, "%lu\t%s\n", counts[at].launches, counts[at].kernel);
    pthread_mutex_unlock(&lock);
    fclose(file);
}

static void subscribe(void) {
    const char *path = getenv("DPACK_CUPTI");
    void *cupti = dlopen(path ? path : "libcupti.so", RTLD_NOW);
    if (!cupti) {
        snprintf(trouble, sizeof trouble, "%s", dlerror());
        return;
    }
    int (*begin)(void **, void (*)(void *, int, uint32_t, const struct call *), void *);
    int (*enable)(uint32_t, void *, int);
    *(void **)&begin = dlsym(cupti, "cuptiSubscribe");
    *(void **)&enable = dlsym(cupti, "cuptiEnableDomain");
    void *subscriber = NULL;
    int status = begin && enable ? begin(&subscriber, on_call, NULL) : -1;
    if (!status) status = enable(1, subscriber, DRIVER_API);
    if (status) snprintf(trouble, sizeof trouble, "CUPTI refuses with status %d", status);
}

int InitializeInjection(void) {
    static int begun;
    if (begun++) return 1;
    subscribe();
    atexit(report);
    return 1;
}
