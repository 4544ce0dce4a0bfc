"""A system that is not there: answers as its first argument says. Usage: fake_peer.py BEHAVIOUR LOSS SECONDS"""
import json
import os
import sys
import time

behaviour, loss, seconds = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
if behaviour == 'dies at once':
    sys.exit('fake: no such device')
hold = b'x' * (64 << 20 if behaviour == 'is large' else 0)
done = 0
for line in sys.stdin:
    words = line.split()
    if words[0] == 'quit':
        break
    if behaviour == 'has no such mode':
        print(json.dumps({'skip': 'no bf16 on this processor'}), flush=True)
        continue
    if behaviour == 'dies later' and done > 0:
        print('fake: killed for its memory', file=sys.stderr)
        os._exit(9)
    if behaviour == 'hangs':
        time.sleep(60)
    if behaviour == 'mumbles':
        print('hello', flush=True)
        continue
    if words[0] == 'collective':
        if behaviour == 'has no all_to_all' and words[1] == 'all_to_all':
            print(json.dumps({'skip': 'no all_to_all'}), flush=True)
        else:
            print(json.dumps({'seconds': [seconds] * int(words[3])}), flush=True)
        continue
    count = int(words[1])
    with open(os.environ['FAKE_DIARY'], 'a') as diary:
        diary.write(f'{os.environ["FAKE_NAME"]} {count}\n')
    done += count
    print(json.dumps({'seconds': [seconds] * count, 'losses': [loss] * count}), flush=True)
