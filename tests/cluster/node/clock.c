/* The time of day as a test wants it: real time and an offset, which is the first eight bytes of the file CLOCK_FILE.
 *
 * Preloaded into a process it answers time(), gettimeofday() and clock_gettime(CLOCK_REALTIME); all other clocks are left
 * alone, as they are when somebody sets a machine's clock.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int64_t offset_seconds(void)
{
    static volatile int64_t *offset;

    if (offset == NULL) {
        const char *path = getenv("CLOCK_FILE");
        int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
        void *page;

        if (file < 0)
            return 0;
        page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
        close(file);
        if (page == MAP_FAILED)
            return 0;
        offset = page;
    }
    return *offset;
}

int clock_gettime(clockid_t clock, struct timespec *at)
{
    int result = (int)syscall(SYS_clock_gettime, clock, at);

    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        at->tv_sec += offset_seconds();
    return result;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone)
{
    struct timespec now;

    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    if (at != NULL)
        *at = now.tv_sec;
    return now.tv_sec;
}
