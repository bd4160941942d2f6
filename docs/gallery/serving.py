"""A model that is served: optimize the files, compare the bytes, load the small one as any other."""
import subprocess
import sys
import tempfile
from pathlib import Path

import paddle

folder = Path(tempfile.mkdtemp())


def transpiler(*arguments):
    """The command line, as in a shell."""
    done = subprocess.run([sys.executable, '-m', 'transpiler', *arguments],
                          cwd=folder,
                          check=True,
                          stdout=subprocess.PIPE,
                          universal_newlines=True)
    return done.stdout


paddle.enable_static()
image = paddle.static.data('image', [None, 3, 32, 32])
hidden = image
for channels in (16, 32, 32):
    hidden = paddle.nn.functional.relu(paddle.static.nn.conv2d(hidden, channels, 3, padding=1))
scores = paddle.static.nn.fc(hidden, 10)
executor = paddle.static.Executor(paddle.CPUPlace())
executor.run(paddle.static.default_startup_program())
paddle.static.save_inference_model(str(folder / 'model'), [image], [scores], executor)

said = transpiler('optimize', 'model', '-o', 'small', '--batch-size', '16', '--release-inputs')
print(''.join(line + '\n' for line in said.splitlines() if 'peak above resting' in line), end='')
said = transpiler('check', 'model', 'small', '--batch-size', '16')
print('runs that give equal bytes:', said.count('equal'))
config = paddle.inference.Config(str(folder / 'small.pdmodel'), str(folder / 'small.pdiparams'))
config.disable_glog_info()
predictor = paddle.inference.create_predictor(config)
print('served:', predictor.get_input_names(), '->', len(predictor.get_output_names()), 'output')
