// The controller of PyTorchJobs and its webhook, as the training operator's own main starts them. That main waits until
// a certificate is mounted at a fixed path.
package main

import (
	"flag"
	"log"

	kubeflow "github.com/kubeflow/training-operator/pkg/apis/kubeflow.org/v1"
	"github.com/kubeflow/training-operator/pkg/config"
	"github.com/kubeflow/training-operator/pkg/controller.v1/common"
	"github.com/kubeflow/training-operator/pkg/controller.v1/pytorch"
	webhooks "github.com/kubeflow/training-operator/pkg/webhooks/pytorch"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	controller "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

func main() {
	health := flag.String("health-probe-bind-address", ":8081", "address for probes")
	port := flag.Int("webhook-server-port", 9443, "port of the webhook")
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
		WebhookServer:          webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: *port}),
		HealthProbeBindAddress: *health,
	})
	must(err)
	must(pytorch.NewReconciler(manager, common.GenNonGangSchedulerSetupFunc()).SetupWithManager(manager, 1))
	must(webhooks.SetupWebhook(manager))
	must(manager.AddReadyzCheck("readyz", manager.GetWebhookServer().StartedChecker()))
	must(manager.Start(controller.SetupSignalHandler()))
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
