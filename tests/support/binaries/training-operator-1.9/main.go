// The controller of PyTorchJobs, as the training operator's own main starts it, but without its webhook: that needs an
// older controller-runtime, and that main waits until a certificate is mounted at a fixed path.
package main

import (
	"flag"
	"log"

	kubeflow "github.com/kubeflow/training-operator/pkg/apis/kubeflow.org/v1"
	"github.com/kubeflow/training-operator/pkg/config"
	"github.com/kubeflow/training-operator/pkg/controller.v1/common"
	"github.com/kubeflow/training-operator/pkg/controller.v1/pytorch"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	controller "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func main() {
	health := flag.String("health-probe-bind-address", ":8081", "address for probes")
	flag.Parse()
	controller.SetLogger(zap.New())
	config.Config.PyTorchInitContainerImage = config.PyTorchInitContainerImageDefault
	config.Config.PyTorchInitContainerTemplateFile = config.PyTorchInitContainerTemplateFileDefault
	config.Config.PyTorchInitContainerMaxTries = config.PyTorchInitContainerMaxTriesDefault

	types := runtime.NewScheme()
	must(scheme.AddToScheme(types))
	must(kubeflow.AddToScheme(types))
	manager, err := controller.NewManager(controller.GetConfigOrDie(), controller.Options{
		Scheme:                 types,
		Metrics:                server.Options{BindAddress: "0"},
		HealthProbeBindAddress: *health,
	})
	must(err)
	must(pytorch.NewReconciler(manager, common.GenNonGangSchedulerSetupFunc()).SetupWithManager(manager, 1))
	must(manager.AddReadyzCheck("readyz", healthz.Ping))
	must(manager.Start(controller.SetupSignalHandler()))
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
