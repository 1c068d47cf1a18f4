#!/bin/sh
# Becomes the process of a container: in mount and host name namespaces that the caller made for it, over a root of its own.
#   launch.sh LAYERS HOSTNAME rw|ro DIRECTORY FILESYSTEM... -- [rw|ro SOURCE TARGET]... -- COMMAND...
set -eu
layers=$1 root=$1/root access=$3 directory=$4
echo "$2" >/proc/sys/kernel/hostname
shift 4
mkdir "$layers/upper" "$layers/work" "$root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$layers/upper,workdir=$layers/work" "$root"
while [ "$1" != -- ]; do
  mount --rbind "$1" "$root$1"
  shift
done
shift
# The new root first, then the volumes: a link in the path of a target, such as /var/run, shall lead to a place in here.
old=.machine
mkdir "$root/$old"
cd "$root"
pivot_root . "$old"
cd /
mkdir -p "$directory"
while [ "$1" != -- ]; do
  if [ -d "/$old$2" ]; then
    mkdir -p "$3"
  else
    mkdir -p "${3%/*}/"
    [ -e "$3" ] || : >"$3"
  fi
  mount --bind "/$old$2" "$3"
  [ "$1" = rw ] || mount -o remount,bind,ro "$3"
  shift 3
done
shift
: >"/$old$layers/launched"
umount --lazy "/$old"
rmdir "/$old"
[ "$access" = rw ] || mount -o remount,bind,ro /
exec env -C "$directory" -- "$@"
